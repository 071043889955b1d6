"""Checks from the API server's side what must hold for every rank: one live pod at a time, none after success.

It watches every change of the pods in order and does not rely on anything that the operator reports.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial

from tests.support.chaos.extra_objects import EXTRA_RESOURCES, ExtraObjectInvariants
from trainwright.api.kinds import KINDS
from trainwright.api.labels import REPLICA_INDEX, REPLICA_TYPE
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, Expired, Unreachable
from trainwright.objects import Object
from trainwright.objects.resources import PODS, Resource

_RECONNECT_SECONDS = 0.05


@dataclass(frozen=True)
class Rank:
    """A rank of one job, read from the labels and owner of its pods."""

    job: str
    job_uid: str
    role: str
    index: str

    def __str__(self) -> str:
        return f"{self.job} {self.role} {self.index}"


class PodInvariants:
    """`observe` takes every event of a watch of pods; `violations` lists the rules that were broken."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.created: Counter[str] = Counter()
        """Number of pods by name."""
        self.writes = 0
        """Changes that only the operator makes: pods created and deleted, statuses of jobs."""
        self.extras = ExtraObjectInvariants()
        self._ranks: dict[str, Rank] = {}
        self._live: dict[Rank, set[str]] = {}
        self._succeeded: set[Rank] = set()
        self._failed: dict[str, Object] = {}

    @property
    def failed(self) -> list[tuple[Rank, Object]]:
        """The failed pods, each in its last state."""
        return [(self._ranks[uid], pod) for uid, pod in self._failed.items()]

    def observe(self, kind: str, pod: Object) -> None:
        self.writes += kind != "MODIFIED"
        uid, rank = pod["metadata"]["uid"], _rank(pod)
        if uid not in self._ranks:
            self._ranks[uid] = rank
            self.created[pod["metadata"]["name"]] += 1
            if rank in self._succeeded:
                self.violations.append(f"{rank} had succeeded and was started again")
        live = self._live.setdefault(rank, set())
        phase = pod["status"]["phase"]
        if kind == "DELETED" or phase in {"Succeeded", "Failed"}:
            live.discard(uid)
        else:
            live.add(uid)
        if len(live) > 1:
            self.violations.append(f"{rank} has {len(live)} live pods at the same time")
        if phase == "Succeeded":
            self._succeeded.add(rank)
        if phase == "Failed":
            self._failed[uid] = pod


@asynccontextmanager
async def checking_invariants(
    client: Client, namespace: str, *, then: Callable[[str, Object], None] = lambda kind, pod: None
) -> AsyncIterator[PodInvariants]:
    """Within the block every change of a pod is checked and passed to `then`."""
    invariants = PodInvariants()

    def pod_changed(kind: str, pod: Object) -> None:
        invariants.observe(kind, pod)
        then(kind, pod)

    def job_changed(kind: str, job: Object) -> None:
        invariants.writes += kind == "MODIFIED"

    watched = [(PODS, pod_changed), *((kind.resource, job_changed) for kind in KINDS.values())]
    watched += [(resource, partial(invariants.extras.observe, resource)) for resource in EXTRA_RESOURCES]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_watch(client, resource, namespace, version, see))
            for resource, see in watched
            for version in [(await client.list(resource, namespace=namespace)).resource_version]
        ]
        yield invariants
        for task in tasks:
            task.cancel()


async def _watch(
    client: Client, resource: Resource, namespace: str, version: str, see: Callable[[str, Object], None]
) -> None:
    """Resumes the watch where it broke, so that no event is lost. After a restart of the server it lists instead."""
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


def _rank(pod: Object) -> Rank:
    labels = pod["metadata"]["labels"]
    (owner,) = [owner for owner in pod["metadata"]["ownerReferences"] if owner.get("controller")]
    index = labels.get(REPLICA_INDEX, "0")  # a launcher has none
    return Rank(owner["name"], owner["uid"], labels[REPLICA_TYPE], index)
