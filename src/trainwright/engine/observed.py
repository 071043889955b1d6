"""What the engine is told about the world around one job: its children and the few outside facts that rules need."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.nodes import Node
from trainwright.objects.pods import Pod


class ServiceView(View, frozen=True):
    """A service as far as plans look at it: whose it is, and whether it is going."""

    metadata: ObjectMeta


class Companion(View, frozen=True):
    """An object of which a job has at most one, named like itself: an autoscaler, a group of pods."""

    metadata: ObjectMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Observed:
    """The pods and services that the job controls, and those that merely carry a name that it would use.

    `taken_ports` matters for `HostPorts` alone: ports of other jobs that have not finished, ports in plans that are
    being applied, and listeners that the Node reports.
    """

    pods: tuple[Pod, ...] = ()
    services: tuple[ServiceView, ...] = ()
    taken_ports: frozenset[int] = frozenset()
    companions: Mapping[str, Companion] = field(default_factory=dict)
    """By kind: the object that is named like the job, whoever controls it."""
    nodes: Mapping[str, Node] | None = None
    """The cluster's Nodes by name; None where we may not see them."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """The cluster's PriorityClasses: the value of each name."""

    def is_cut_off(self, pod: Pod) -> bool:
        """Whether a pod that has not ended has a node that is gone or silent, as far as we may see."""
        if self.nodes is None or not pod.spec.node_name or pod.finished:
            return False
        node = self.nodes.get(pod.spec.node_name)
        return node is None or not node.ready
