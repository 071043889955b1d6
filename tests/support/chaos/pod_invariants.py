"""A judge that watches the pods of jobs from the API server's side, and knows what must never happen to a rank.

It is told of every change in order, and trusts nothing that the operator says about itself.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from trainwright.api.kinds import PYTORCH
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, Expired, Unreachable
from trainwright.objects import Object
from trainwright.objects.resources import PODS, Resource

_LABEL = "training.kubeflow.org/"
_RECONNECT_SECONDS = 0.05


@dataclass(frozen=True)
class Place:
    """A rank of one job, told by what its pods carry."""

    job: str
    job_uid: str
    role: str
    index: str

    def __str__(self) -> str:
        return f"{self.job} {self.role} {self.index}"


class PodInvariants:
    """`take` is given every event of a watch on pods; `problems` says which rules were broken."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.created: Counter[str] = Counter()
        """How many pods there were of each name."""
        self.writes = 0
        """Changes that only the operator makes: pods that come and go, and what jobs say of themselves."""
        self._place: dict[str, Place] = {}
        self._live: dict[Place, set[str]] = {}
        self._succeeded: set[Place] = set()
        self._failed: dict[str, Object] = {}

    @property
    def failed(self) -> list[tuple[Place, Object]]:
        """The pods that failed, each in its last state."""
        return [(self._place[uid], pod) for uid, pod in self._failed.items()]

    def observe(self, kind: str, pod: Object) -> None:
        self.writes += kind != "MODIFIED"
        uid, place = pod["metadata"]["uid"], _place(pod)
        if uid not in self._place:
            self._place[uid] = place
            self.created[pod["metadata"]["name"]] += 1
            if place in self._succeeded:
                self.violations.append(f"{place} had succeeded and was started again")
        live = self._live.setdefault(place, set())
        phase = pod["status"]["phase"]
        if kind == "DELETED" or phase in {"Succeeded", "Failed"}:
            live.discard(uid)
        else:
            live.add(uid)
        if len(live) > 1:
            self.violations.append(f"{place} has {len(live)} live pods at the same time")
        if phase == "Succeeded":
            self._succeeded.add(place)
        if phase == "Failed":
            self._failed[uid] = pod


@asynccontextmanager
async def checking_invariants(
    client: Client, namespace: str, *, then: Callable[[str, Object], None] = lambda kind, pod: None
) -> AsyncIterator[PodInvariants]:
    """Within the block every change of a pod is judged, and handed to `then`."""
    lives = PodInvariants()

    def pod_changed(kind: str, pod: Object) -> None:
        lives.observe(kind, pod)
        then(kind, pod)

    def job_changed(kind: str, job: Object) -> None:
        lives.writes += kind == "MODIFIED"

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_watch(client, resource, namespace, version, see))
            for resource, see in ((PODS, pod_changed), (PYTORCH.resource, job_changed))
            for version in [(await client.list(resource, namespace=namespace)).resource_version]
        ]
        yield lives
        for task in tasks:
            task.cancel()


async def _watch(
    client: Client, resource: Resource, namespace: str, version: str, see: Callable[[str, Object], None]
) -> None:
    """Takes the watch up where it broke off, so that a broken connection hides nothing. Only a server that was started
    again cannot go on from there; then what it lists has to do."""
    known: dict[str, Object] = {}
    while True:
        try:
            if not version:
                version = await _list(client, resource, namespace, known, see)
            async with aclosing(client.watch(resource, namespace=namespace, resource_version=version)) as events:
                async for event in events:
                    version = event.object["metadata"]["resourceVersion"]
                    known[event.object["metadata"]["uid"]] = event.object
                    if event.type == "DELETED":
                        del known[event.object["metadata"]["uid"]]
                    see(event.type, event.object)
        except Expired:
            version = ""
        except (Unreachable, ApiError):
            await asyncio.sleep(_RECONNECT_SECONDS)


async def _list(
    client: Client,
    resource: Resource,
    namespace: str,
    known: dict[str, Object],
    see: Callable[[str, Object], None],
) -> str:
    found = await client.list(resource, namespace=namespace)
    there = {item["metadata"]["uid"]: item for item in found.items}
    for uid in known.keys() - there.keys():
        see("DELETED", known.pop(uid))
    for uid, item in there.items():
        before = known.get(uid)
        if before is None or before["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
            see("MODIFIED" if before else "ADDED", item)
    known.update(there)
    return found.resource_version


def _place(pod: Object) -> Place:
    labels = pod["metadata"]["labels"]
    (owner,) = [owner for owner in pod["metadata"]["ownerReferences"] if owner.get("controller")]
    return Place(owner["name"], owner["uid"], labels[f"{_LABEL}replica-type"], labels[f"{_LABEL}replica-index"])
