"""The operator's flags that affect plans. They are the same for all jobs."""

from dataclasses import dataclass

from trainwright.engine.init_template import InitTemplate
from trainwright.objects.kinds.gangs import GangScheduler
from trainwright.objects.node_annotations import HOST_IMAGE, KUBECTL_DELIVERY_IMAGE


@dataclass(frozen=True, slots=True, kw_only=True)
class InitContainer:
    """The init container in which workers wait until the master's name resolves. Defaults are upstream's."""

    image: str = "alpine:3.10"
    max_tries: int = 100
    pause_seconds: float = 2
    limited: bool = True
    """Whether it has upstream's requests and limits, and the security context of the main container. The embedded
    cluster needs neither."""
    wait_for_port: bool = False
    """Whether it waits until the master's port accepts connections, not only until the name resolves."""
    template: InitTemplate | None = None
    """Replaces the container. Only `image` and `max_tries` are used, for its placeholders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubectlDelivery:
    """The init container that puts kubectl into the launcher of an MPIJob. Defaults are upstream's."""

    image: str = "ghcr.io/kubeflow/training-v1/kubectl-delivery:latest"
    limited: bool = True
    """Whether it has upstream's requests and limits. The embedded cluster needs none."""
    waits_at_once: int = 5
    """The number of pods of one `kubectl wait`, which sends at least one request for each, and five a second. That of
    the embedded cluster sends one for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    one_machine: bool = False
    """Whether all pods share the cores of one machine."""
    init_container: InitContainer | None = InitContainer()
    """None: workers do not wait for the master."""
    cluster_domain: str = ""
    """The domain of the cluster, such as `cluster.local`, in the addresses of TF_CONFIG; empty: they end with `svc`."""
    kubectl_delivery: KubectlDelivery = KubectlDelivery()
    gang: GangScheduler | None = None
    """None: pods are scheduled one by one."""
    autoscaling: bool = True
    """Whether the cluster serves HorizontalPodAutoscalers and the operator is allowed to create them."""
    group_restart: bool = False
    """Whether all pods of a job are replaced when one fails; an annotation of the job overrides it."""
    dead_node_seconds: int | None = None
    """How long a node may be deleted or not Ready before its pods are replaced; None: they are not replaced. An
    annotation of the job overrides it."""


EMBEDDED = Settings(
    one_machine=True,
    autoscaling=False,
    init_container=InitContainer(image=HOST_IMAGE, max_tries=1000, pause_seconds=0.2, limited=False),
    kubectl_delivery=KubectlDelivery(image=KUBECTL_DELIVERY_IMAGE, limited=False, waits_at_once=1_000_000),
)
"""The settings for a cluster whose pods are processes on this machine."""
