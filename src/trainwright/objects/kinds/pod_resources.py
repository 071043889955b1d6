"""The resources that a pod needs at once. The scheduler and ResourceQuotas count them alike."""

from collections.abc import Iterable, Mapping
from fractions import Fraction

from trainwright.objects.quantities import add_amounts, largest_amounts

Amounts = Mapping[str, Fraction]

SIDECAR = "Always"
"""The restartPolicy of an init container that runs beside all later containers."""


def peak_amounts(containers: Iterable[Amounts], init_containers: Iterable[tuple[str | None, Amounts]]) -> Amounts:
    """The sum of the containers and sidecars, or an init container with the sidecars before it if it needs more.

    Init containers have their restartPolicy.
    """
    sidecars: list[Amounts] = []
    peaks: list[Amounts] = []
    for restart_policy, amounts in init_containers:
        peaks.append(add_amounts([amounts, *sidecars]))
        if restart_policy == SIDECAR:
            sidecars.append(amounts)
    return largest_amounts([add_amounts([*containers, *sidecars]), *peaks])
