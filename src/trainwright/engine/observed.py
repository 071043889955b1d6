"""What the engine is told about the world around one job: its children and the few outside facts that rules need."""

from dataclasses import dataclass

from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.pods import Pod


class ServiceView(View, frozen=True):
    """A service as far as plans look at it: whose it is, and whether it is going."""

    metadata: ObjectMeta


@dataclass(frozen=True, slots=True)
class Observed:
    """The pods and services that the job controls, and those that merely carry a name that it would use.

    `taken_ports` matters for `HostPorts` alone: ports of other jobs that have not finished, ports in plans that are
    being applied, and listeners that the Node reports.
    """

    pods: tuple[Pod, ...] = ()
    services: tuple[ServiceView, ...] = ()
    taken_ports: frozenset[int] = frozenset()
