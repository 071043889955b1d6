"""A node as plans see it: whether it is ready, and since when it is not."""

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
        """Whether its kubelet says so; silence counts as no."""
        condition = self._readiness
        return condition is not None and condition.status == "True"

    @property
    def unready_since(self) -> str | None:
        """When it stopped to be ready; None while it is, or if nobody says when."""
        if self.ready:
            return None
        told = None if self._readiness is None else self._readiness.last_transition_time
        return told or self.metadata.creation_timestamp

    @property
    def _readiness(self) -> NodeCondition | None:
        return next((condition for condition in self.status.conditions if condition.type == "Ready"), None)
