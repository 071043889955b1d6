"""The typed key by which work queues and per-object memories name one object."""

from typing import NamedTuple, Self

from trainwright.objects import Object


class ObjectKey(NamedTuple):
    """`namespace` is empty for cluster-scoped objects."""

    kind: str
    namespace: str
    name: str

    @classmethod
    def of(cls, obj: Object) -> Self:
        metadata = obj["metadata"]
        return cls(obj["kind"], metadata.get("namespace") or "", metadata["name"])

    @property
    def namespaced_name(self) -> str:
        """The key of the object in a `Store`."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        return f"{self.kind}/{self.namespaced_name}"
