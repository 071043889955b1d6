"""What `trainwright operator` can be told. Names follow the training-operator's flags where it has them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.api.kinds import KINDS, Kind
from trainwright.engine import Settings


class OperatorError(Exception):
    """The operator cannot work, and waiting would not help. One line, for the user."""


@dataclass(frozen=True, kw_only=True)
class LeaderElectionOptions:
    """The defaults are those of every Kubernetes controller, and the name is training-operator's, so that the two
    never lead at the same time."""

    name: str = "1ca428e5.training-operator.kubeflow.org"
    namespace: str | None = None
    """None: the namespace of this pod, or of the kubeconfig's context."""
    lease_seconds: float = 15.0
    """After this time without a sign of life another process takes over."""
    renew_seconds: float = 10.0
    """After this time without a renewal the leader stops."""
    retry_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_seconds < self.renew_seconds < self.lease_seconds:
            raise OperatorError(
                "--leader-election-retry-period < --leader-election-renew-deadline < --leader-election-lease-duration "
                f"must hold, so that a leader stops before another starts: not {self.retry_seconds:g}, "
                f"{self.renew_seconds:g} and {self.lease_seconds:g} seconds"
            )


@dataclass(frozen=True, kw_only=True)
class WebhookOptions:
    """Names as in upstream's manifests."""

    port: int = 9443
    service: str = "training-operator"
    secret: str = "training-operator-webhook-cert"  # noqa: S105 (its name)
    configuration: str = "validator.training-operator.kubeflow.org"


@dataclass(frozen=True, kw_only=True)
class OperatorOptions:
    """The operator's flags. By themselves they open no port; the command's defaults, which are upstream's, do.

    Unlike upstream, one job does not wait for another: many are looked at at once, each by one thread of control.
    """

    namespace: str | None = None
    """The only namespace to look after; None: all of them."""
    kubeconfig: Path | None = None
    """None: $KUBECONFIG or ~/.kube/config, or inside a pod the cluster that it runs on."""
    context: str | None = None
    """None: the kubeconfig's current context."""
    settings: Settings = field(default_factory=Settings)
    """What changes decisions about jobs."""
    controller_threads: int = 64
    """How many jobs are reconciled at the same time."""
    parallel_writes: int = 32
    """How many writes are under way at the same time, over all jobs."""
    kube_api_qps: float | None = None
    """Requests per second in the long run; None: as many as the API server takes."""
    kube_api_burst: int = 30
    """How many of them may go at once."""
    enable_scheme: tuple[str, ...] = ()
    """The kinds to look after, in any letter case; empty: all."""
    install_crds: bool = False
    """Whether to install or update the CustomResourceDefinitions before starting."""
    metrics_bind_address: str = "0"
    health_probe_bind_address: str = "0"
    leader_election: LeaderElectionOptions | None = None
    """None: this process is the only one."""
    webhooks: WebhookOptions | None = None
    """None: no admission webhooks."""


def enabled_kinds(names: tuple[str, ...], kinds: Mapping[str, Kind] = KINDS) -> dict[str, Kind]:
    """The kinds that `--enable-scheme` names; all of them without a name."""
    by_lower_case = {name.lower(): name for name in kinds}
    for name in names:
        if name.lower() not in by_lower_case:
            raise OperatorError(
                f"--enable-scheme: scheme {name} is not supported yet; name one of {', '.join(sorted(kinds))}"
            )
    enabled = {by_lower_case[name.lower()] for name in names} or set(kinds)
    return {name: kind for name, kind in kinds.items() if name in enabled}
