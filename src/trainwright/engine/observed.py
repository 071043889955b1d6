"""The world around one job as the engine sees it: its children and the few outside facts that rules need."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.nodes import Node
from trainwright.objects.pods import Pod


class ServiceView(View, frozen=True):
    """A Service as far as plans depend on it: its owner, and whether it is being deleted."""

    metadata: ObjectMeta


@dataclass(frozen=True, slots=True)
class ExtraView:
    """An object of a job besides its pods and Services: an autoscaler, a PodGroup, a ConfigMap."""

    kind: str
    metadata: ObjectMeta
    content: Object
    """Everything but `apiVersion`, `kind` and `metadata`."""


def read_extra(obj: Object) -> ExtraView:
    content = {key: value for key, value in obj.items() if key not in {"apiVersion", "kind", "metadata"}}
    return ExtraView(obj["kind"], msgspec.convert(obj["metadata"], ObjectMeta), content)


@dataclass(frozen=True, slots=True)
class Observed:
    """The children that the job controls, and objects of others that carry its name in their labels.

    `taken_ports` matters for `HostPorts` alone: ports of other jobs that have not finished, ports in plans that are
    being applied, and listeners that the Node reports.
    """

    pods: tuple[Pod, ...] = ()
    services: tuple[ServiceView, ...] = ()
    taken_ports: frozenset[int] = frozenset()
    extras: tuple[ExtraView, ...] = ()
    nodes: Mapping[str, Node] | None = None
    """The cluster's Nodes by name; None where the operator may not watch them."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """The cluster's PriorityClasses: the value of each name."""

    def is_unreachable(self, pod: Pod) -> bool:
        """True if a pod that has not finished has a Node that is deleted or not Ready, as far as Nodes are visible."""
        if self.nodes is None or not pod.spec.node_name or pod.finished:
            return False
        node = self.nodes.get(pod.spec.node_name)
        return node is None or not node.ready
