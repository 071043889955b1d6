"""The view of a node: whether it is Ready, and since when it is not."""

from trainwright.objects.metadata import ObjectMeta, View


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
        condition = self._ready_condition
        return condition is not None and condition.status == "True"

    @property
    def unready_since(self) -> str | None:
        """Since when the node is not Ready; None if it is Ready or the time is unknown."""
        if self.ready:
            return None
        condition = self._ready_condition
        since = None if condition is None else condition.last_transition_time
        return since or self.metadata.creation_timestamp

    @property
    def _ready_condition(self) -> NodeCondition | None:
        return next((condition for condition in self.status.conditions if condition.type == "Ready"), None)
