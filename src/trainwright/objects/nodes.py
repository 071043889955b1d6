"""A Node as operators and controllers see it: whether it can be trusted to look after its pods."""

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
        return self._readiness is not None and self._readiness.status == "True"

    @property
    def unready_since(self) -> str | None:
        """When it was last heard of as ready; None while it is, or if it never said."""
        return None if self.ready or self._readiness is None else self._readiness.last_transition_time

    @property
    def _readiness(self) -> NodeCondition | None:
        return next((condition for condition in self.status.conditions if condition.type == "Ready"), None)
