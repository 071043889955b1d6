"""The namespaces of pods, as far as this node needs them: whether their policy opens the machine to pods."""

from trainwright.kube.controller.store import Store, raw_metadata
from trainwright.objects import Object
from trainwright.objects.kinds.pod_security import ENFORCE, PRIVILEGED


class Namespaces:
    def __init__(self) -> None:
        self.store: Store[Object] = Store(metadata=raw_metadata)

    def open_homes(self, name: str) -> bool:
        """Whether pods share the home of the user, as with a hostPath, which every level but `privileged` forbids."""
        namespace = self.store.get(name)
        labels = (namespace or {}).get("metadata", {}).get("labels") or {}
        return namespace is not None and labels.get(ENFORCE, PRIVILEGED) == PRIVILEGED
