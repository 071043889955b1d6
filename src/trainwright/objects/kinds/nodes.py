"""The view of a node: whether it is Ready, since when it is not, and whether its pods have ports of their own."""

from trainwright.objects.metadata import ObjectMeta, View

NODE_NAME = "local"
"""The name of the embedded node."""

NODE_ADDRESS = "127.0.0.1"
"""The address of the embedded node and of pods on its network, where node ports and host ports are reached: other
machines must not reach pods."""

OWN_PORTS = "OwnPorts"
"""The condition of an embedded node that gives every pod its own ports. Without it pods have those of the machine."""


class NodeCondition(View, frozen=True):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class NodeStatus(View, frozen=True):
    conditions: tuple[NodeCondition, ...] = ()


class Node(View, frozen=True):
    metadata: ObjectMeta
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """True if the condition Ready is True; without the condition the node is not ready."""
        return self._is_true("Ready")

    @property
    def unready_since(self) -> str | None:
        """Since when the node is not Ready; None if it is Ready or the time is unknown."""
        if self.ready:
            return None
        condition = self._condition("Ready")
        since = None if condition is None else condition.last_transition_time
        return since or self.metadata.creation_timestamp

    @property
    def has_own_ports(self) -> bool:
        return self._is_true(OWN_PORTS)

    def _is_true(self, type_: str) -> bool:
        condition = self._condition(type_)
        return condition is not None and condition.status == "True"

    def _condition(self, type_: str) -> NodeCondition | None:
        return next((condition for condition in self.status.conditions if condition.type == type_), None)
