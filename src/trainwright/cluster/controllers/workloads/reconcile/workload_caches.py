"""What the controllers of all workloads share: the client, the caches by owner, and how a status is written."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from trainwright.kube.client.async_client import Client
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.outcome import RequeueAfter
from trainwright.kube.controller.store import Store, raw_metadata
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.metadata import ObjectMeta
from trainwright.objects.resources import REPLICA_SETS, Resource

BY_OWNER = "owner"
BY_NAMESPACE = "namespace"
_MARGIN_SECONDS = 0.1
"""Added to the time at which something is due, because timers may fire early."""


@dataclass(frozen=True, slots=True)
class WorkloadCaches:
    client: Client
    recorder: EventRecorder
    stores: Mapping[str, Store[Object]]
    """By kind."""
    pods: Store[Pod]
    now: Callable[[], datetime]

    def pods_for(self, owner: Object) -> list[Pod]:
        """The pods that the object owns or may adopt."""
        metadata = owner["metadata"]
        return self.pods.by_index(BY_OWNER, metadata["uid"], _orphans(metadata["namespace"]))

    def sets_for(self, deployment: Object) -> list[Object]:
        """The ReplicaSets that the Deployment owns or may adopt."""
        metadata = deployment["metadata"]
        sets = self.stores[REPLICA_SETS.kind]
        return sets.by_index(BY_OWNER, metadata["uid"], _orphans(metadata["namespace"]))

    def live_pods(self, sets: Sequence[Object]) -> Mapping[str, int]:
        """Counts the unfinished pods of ReplicaSets by the set's uid."""
        uids = [replica_set["metadata"]["uid"] for replica_set in sets]
        return Counter({uid: sum(not pod.finished for pod in self.pods.by_index(BY_OWNER, uid)) for uid in uids})

    async def write_status(self, resource: Resource, obj: Object, status: Object) -> None:
        """Writes the status if it differs; the cache has the object as it is then."""
        if status != (obj.get("status") or {}):
            changed = await self.client.replace(resource, obj | {"status": status}, subresource="status")
            self.stores[resource.kind].remember(changed)


def object_store() -> Store[Object]:
    def owner(obj: Object) -> Iterable[str]:
        return [owner_index(raw_metadata(obj))]

    return Store[Object](indexes={BY_OWNER: owner, BY_NAMESPACE: lambda obj: [obj["metadata"]["namespace"]]})


def owner_index(metadata: ObjectMeta) -> str:
    """The uid of the controller; an orphan is found by its namespace."""
    owner = metadata.controller
    return owner.uid if owner is not None else _orphans(metadata.namespace)


def _orphans(namespace: str) -> str:
    return f"orphans in {namespace}"


def requeue_after(seconds: float | None) -> RequeueAfter | None:
    return None if seconds is None else RequeueAfter(seconds + _MARGIN_SECONDS)
