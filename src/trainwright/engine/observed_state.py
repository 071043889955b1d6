"""The engine's input besides the job: its children, and what policies need to know about the cluster around it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from trainwright.objects import Object
from trainwright.objects.kinds.nodes import Node
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.metadata import ObjectMeta, View


class ServiceView(View, frozen=True):
    """The fields of a Service that plans depend on: its owner, and whether it is being deleted."""

    metadata: ObjectMeta


@dataclass(frozen=True, slots=True)
class ExtraView:
    """An extra object of a job: an autoscaler, a PodGroup, a ConfigMap."""

    kind: str
    metadata: ObjectMeta
    content: Object
    """Everything but `apiVersion`, `kind` and `metadata`."""


def read_extra(obj: Object) -> ExtraView:
    content = {key: value for key, value in obj.items() if key not in {"apiVersion", "kind", "metadata"}}
    return ExtraView(obj["kind"], msgspec.convert(obj["metadata"], ObjectMeta), content)


@dataclass(frozen=True, slots=True)
class Observed:
    """The children of the job, and other objects with its name in their labels."""

    pods: tuple[Pod, ...] = ()
    services: tuple[ServiceView, ...] = ()
    extras: tuple[ExtraView, ...] = ()
    nodes: Mapping[str, Node] | None = None
    """The cluster's Nodes by name; None if the operator is not allowed to watch them."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """The values of the cluster's PriorityClasses by name."""

    def is_unreachable(self, pod: Pod) -> bool:
        """True if an unfinished pod has a Node that is deleted or not Ready; False if Nodes are not watched."""
        if self.nodes is None or not pod.spec.node_name or pod.finished:
            return False
        node = self.nodes.get(pod.spec.node_name)
        return node is None or not node.ready
