"""The operator's flags that change decisions. They are the same for all jobs."""

from dataclasses import dataclass
from enum import StrEnum

from trainwright.engine.init_template import InitTemplate
from trainwright.objects.node_annotations import HOST_IMAGE
from trainwright.objects.resources import Resource


class Addressing(StrEnum):
    CLUSTER_DNS = "ClusterDNS"
    """Peers are reached under their service's name at the declared port."""
    HOST_PORTS = "HostPorts"
    """All pods share one machine's network: every listener needs a port of its own there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InitContainer:
    """Where workers wait, bounded, until the master's name resolves. Defaults are upstream's."""

    image: str = "alpine:3.10"
    max_tries: int = 100
    pause_seconds: float = 2
    limited: bool = True
    """With upstream's requests and limits, and as restricted as the pod itself; without, where nothing would enforce
    either."""
    wait_for_port: bool = False
    """Until the master's port answers, not its name alone."""
    template: InitTemplate | None = None
    """Containers in place of ours. `image` and `max_tries` fill its placeholders, the rest has no effect."""


@dataclass(frozen=True, slots=True)
class Gang:
    """The scheduler that starts a job's pods together. `volcano`, in any letter case, has PodGroups of its own; all
    others use those of Kubernetes' scheduler plugins."""

    name: str

    @property
    def is_volcano(self) -> bool:
        return self.name.lower() == "volcano"

    @property
    def scheduler(self) -> str:
        return "volcano" if self.is_volcano else self.name

    @property
    def resource(self) -> Resource:
        group, version = (
            ("scheduling.volcano.sh", "v1beta1") if self.is_volcano else ("scheduling.x-k8s.io", "v1alpha1")
        )
        return Resource(group, version, "podgroups", "PodGroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    addressing: Addressing = Addressing.CLUSTER_DNS
    init_container: InitContainer | None = InitContainer()
    """None: workers start at once."""
    port_range: range = range(20000, 32768)
    """Where `HostPorts` looks for a port when the declared one is taken: below Linux' ephemeral range."""
    gang: Gang | None = None
    """None: pods are scheduled one by one."""
    autoscaling: bool = True
    """Whether the cluster has HorizontalPodAutoscalers that we may create."""
    group_restart: bool = False
    """Whether a failed pod takes all others of its job with it; a job's annotation may say otherwise."""
    dead_node_seconds: int | None = None
    """For how long a node may be gone before its pods are replaced; None: for ever. A job may say otherwise."""


EMBEDDED = Settings(
    addressing=Addressing.HOST_PORTS,
    autoscaling=False,
    init_container=InitContainer(image=HOST_IMAGE, max_tries=1000, pause_seconds=0.2, limited=False),
)
"""The settings for a cluster whose pods are processes on this machine."""
