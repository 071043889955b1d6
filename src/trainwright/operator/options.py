"""The options of `trainwright operator`, named after training-operator's flags where those exist."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.api.kinds import KINDS, Kind
from trainwright.engine import Settings


class OperatorError(Exception):
    """The operator cannot run, and retrying would not help. The message is one line for the user."""


@dataclass(frozen=True, kw_only=True)
class LeaderElectionOptions:
    """The defaults are those of Kubernetes controllers. The name is training-operator's, so that only one of the two
    operators is the leader at a time."""

    name: str = "1ca428e5.training-operator.kubeflow.org"
    namespace: str | None = None
    """None: the namespace of this pod, or of the kubeconfig's context."""
    lease_seconds: float = 15.0
    """A standby takes over if the lease was not renewed for this time."""
    renew_seconds: float = 10.0
    """The leader stops if it could not renew the lease for this time."""
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
    """These defaults open no port. The flags of the command have upstream's defaults, which do."""

    namespace: str | None = None
    """Reconcile only jobs of this namespace; None: of all."""
    kubeconfig: Path | None = None
    """None: $KUBECONFIG or ~/.kube/config, or inside a pod its service account."""
    context: str | None = None
    """None: the kubeconfig's current context."""
    settings: Settings = field(default_factory=Settings)
    """The options that change what the engine plans."""
    controller_threads: int = 64
    """Maximum number of concurrent reconciles."""
    parallel_writes: int = 32
    """Maximum number of concurrent writes, over all jobs."""
    kube_api_qps: float | None = None
    """Maximum average number of requests per second; None: no limit."""
    kube_api_burst: int = 30
    """Maximum burst of requests, if `kube_api_qps` is set."""
    enable_scheme: tuple[str, ...] = ()
    """The kinds to reconcile, in any letter case; empty: all."""
    install_crds: bool = False
    """Install or update the CustomResourceDefinitions before starting."""
    read_failed_pod_logs: bool = False
    """Read the last log lines of failed pods, to name the cause in events and in the status of jobs."""
    metrics_bind_address: str = "0"
    health_probe_bind_address: str = "0"
    leader_election: LeaderElectionOptions | None = None
    """None: no leader election, this process is the only one."""
    webhooks: WebhookOptions | None = None
    """None: no admission webhooks."""


def enabled_kinds(names: tuple[str, ...], kinds: Mapping[str, Kind] = KINDS) -> dict[str, Kind]:
    """The kinds that `--enable-scheme` names; all kinds without the flag."""
    by_lower_case = {name.lower(): name for name in kinds}
    for name in names:
        if name.lower() not in by_lower_case:
            raise OperatorError(
                f"--enable-scheme: scheme {name} is not supported yet; name one of {', '.join(sorted(kinds))}"
            )
    enabled = {by_lower_case[name.lower()] for name in names} or set(kinds)
    return {name: kind for name, kind in kinds.items() if name in enabled}
