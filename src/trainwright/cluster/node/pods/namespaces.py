"""The namespaces of pods, as far as this node needs them: whether their policy opens the machine to pods."""

from trainwright.kube.client.async_client import Client
from trainwright.kube.controller.store import Store, raw_metadata
from trainwright.objects import Object
from trainwright.objects.kinds.pod_security import ENFORCE, PRIVILEGED
from trainwright.objects.resources import NAMESPACES


class Namespaces:
    def __init__(self, client: Client) -> None:
        self._client = client
        self.store: Store[Object] = Store(metadata=raw_metadata)

    async def open_homes(self, name: str) -> bool:
        """Whether pods share the home of the user, as with a hostPath, which every level but `privileged` forbids."""
        # The watch may not have seen a new one yet.
        namespace = self.store.get(name) or await self._client.get(NAMESPACES, name)
        labels = namespace["metadata"].get("labels") or {}
        return bool(labels.get(ENFORCE, PRIVILEGED) == PRIVILEGED)
