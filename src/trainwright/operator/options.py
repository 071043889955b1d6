"""What `trainwright operator` can be told. Names follow the training-operator's flags where it has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwright.api.kinds import KINDS, Kind


class OperatorError(Exception):
    """The operator cannot work, and waiting would not help. One line, for the user."""


@dataclass(frozen=True, kw_only=True)
class OperatorOptions:
    """The operator's flags.

    Unlike upstream, one job does not wait for another: many are looked at at once, each by one thread of control.
    """

    namespace: str | None = None
    """The only namespace to look after; None: all of them."""
    kubeconfig: Path | None = None
    """None: $KUBECONFIG or ~/.kube/config, or inside a pod the cluster that it runs on."""
    context: str | None = None
    """None: the kubeconfig's current context."""
    controller_threads: int = 64
    """How many jobs are reconciled at the same time."""
    parallel_writes: int = 32
    """How many writes are under way at the same time, over all jobs."""
    pytorch_init_container_image: str = "alpine:3.10"
    """The image in which a worker waits for its master's name."""
    pytorch_init_container_max_tries: int = 100
    """How often the worker asks, 2 seconds apart, before its pod fails."""
    enable_scheme: tuple[str, ...] = ()
    """The kinds to look after, in any letter case; empty: all."""
    install_crds: bool = False
    """Whether to install or update the CustomResourceDefinitions before starting."""


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
