"""Two operators on one API server live through the same cases in two namespaces, step by step.

After every step both come to rest and what they have made is read. Pods are played, exactly alike on both sides.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress

from tests.support.cluster.fake_kubelet import FakeKubelet
from tests.support.differential.cases import (
    Action,
    Admit,
    Case,
    Change,
    Delete,
    DeleteService,
    Evict,
    Exit,
    PodReport,
    Restarted,
    SidecarDied,
    Start,
    Stuck,
    Unschedulable,
)
from tests.support.differential.snapshots import Snapshot, snapshots
from tests.support.objects.jobs import JobBuilder
from tests.support.waiting import eventually
from trainwright.api.kinds import PYTORCH
from trainwright.engine.settings import Gang
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, Conflict, NotFound
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store, raw_metadata
from trainwright.objects import Object
from trainwright.objects.resources import AUTOSCALERS, EVENTS, NAMESPACES, PODS, SERVICE_ACCOUNTS, SERVICES

_REST_SECONDS = 1.0
"""Nothing was written for so long, by an operator that has answered meanwhile: it has nothing left to do."""
_PATIENCE_SECONDS = 60.0
"""A job that its operator tries again and again never rests; the pauses between two tries are long by then."""

_HANDS = 16
_numbers = itertools.count(1)


class Side:
    """One operator's namespace. `moved` is when something there was last written, by the event loop's clock."""

    def __init__(self, client: Client, namespace: str, *, gang: Gang | None = None) -> None:
        self.namespace = namespace
        self.moved = 0.0
        self._gang = gang
        self._resources = [PYTORCH.resource, PODS, SERVICES, AUTOSCALERS, EVENTS, *([gang.resource] if gang else [])]
        self._client = client
        self._kubelet = FakeKubelet(client, namespace=namespace)
        self._hands = asyncio.Semaphore(_HANDS)
        self._kept: set[str] = set()
        self._reaping: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Side"]:
        """Within the block the namespace is there, what happens in it is noticed, and terminating pods are let go."""
        await self._make_namespace()
        await self._kubelet.register()
        watches = [
            Reflector(
                self._client,
                resource,
                Store(metadata=raw_metadata),
                convert=_whole,
                namespace=self.namespace,
                on_change=self._notice,
            )
            for resource in self._resources
        ]
        tasks = [asyncio.create_task(watch.run()) for watch in watches]
        try:
            yield self
        finally:
            for task in (*tasks, *self._reaping):
                task.cancel()
            await asyncio.gather(*tasks, *self._reaping, return_exceptions=True)
            await self._client.delete(NAMESPACES, self.namespace)

    async def submit(self, case: Case) -> None:
        manifest = {**case.manifest, "metadata": {**case.manifest["metadata"], "namespace": self.namespace}}
        async with self._hands:
            await self._client.create(PYTORCH.resource, manifest)

    async def play(self, case: Case, actions: Iterable[Action]) -> None:
        """What has vanished, because an operator had reasons to remove it, cannot action any more."""
        for action in actions:
            async with self._hands:
                with suppress(NotFound, Conflict):
                    await self._act(case, action)

    async def answer(self) -> None:
        """Waits until the operator has dealt with a job that was submitted just now."""
        marker = JobBuilder(f"marker-{next(_numbers)}", namespace=self.namespace).master().suspend().raw()
        name = marker["metadata"]["name"]
        await self._client.create(PYTORCH.resource, {**marker, "metadata": {"name": name, "namespace": self.namespace}})
        await eventually(
            lambda: self._client.get(PYTORCH.resource, name, namespace=self.namespace),
            lambda seen: (seen.get("status") or {}).get("conditions"),
            seconds=60,
        )
        await self._client.delete(PYTORCH.resource, name, namespace=self.namespace)

    async def look(self, cases: Sequence[Case]) -> dict[str, Snapshot]:
        listed = {
            resource: (await self._client.list(resource, namespace=self.namespace)).items
            for resource in self._resources
        }
        return snapshots([case.name for case in cases], listed, namespace=self.namespace)

    async def _act(self, case: Case, action: Action) -> None:
        match action:
            case Start():
                await asyncio.gather(*(self._start(pod) for pod in await self._pods(case)))
            case Admit():
                await self._admit(case)
            case Change(spec):
                await self._client.patch(PYTORCH.resource, case.name, {"spec": spec}, namespace=self.namespace)
            case DeleteService(pod):
                await self._client.delete(SERVICES, f"{case.name}-{pod}", namespace=self.namespace)
            case Delete(pod, slowly):
                if slowly:
                    self._kept.add(f"{case.name}-{pod}")
                await self._client.delete(PODS, f"{case.name}-{pod}", namespace=self.namespace)
            case _:
                await self._report(f"{case.name}-{action.pod}", action)

    async def _report(self, pod: str, action: PodReport) -> None:
        """What a kubelet or a scheduler has to say of a pod."""
        match action:
            case Restarted(_, times):
                await self._kubelet.start(pod, restarts=times)
            case Exit(_, code):
                await self._kubelet.finish(pod, exit_code=code)
            case Evict():
                message = "The node was low on resource: memory."
                await self._kubelet.finish(pod, exit_code=137, reason="Evicted", message=message)
            case Stuck(_, reason, message):
                await self._kubelet.wait(pod, reason=reason, message=message)
            case Unschedulable():
                message = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
                await self._kubelet.leave_unscheduled(pod, message=message)
            case SidecarDied():
                await self._kubelet.end_container(pod, 1, exit_code=3, message="no room for logs")

    async def _admit(self, case: Case) -> None:
        """Volcano alone makes pods wait until it has."""
        if self._gang and self._gang.is_volcano:
            phase = {"status": {"phase": "Inqueue"}}
            await self._client.patch(
                self._gang.resource, case.name, phase, namespace=self.namespace, subresource="status"
            )

    async def _pods(self, case: Case) -> list[Object]:
        found = (await self._client.list(PODS, namespace=self.namespace)).items
        return [pod for pod in found if pod["metadata"]["name"].startswith(f"{case.name}-")]

    async def _start(self, pod: Object) -> None:
        """The next step of a pod: a new one runs, one that ended slowly is gone."""
        name = pod["metadata"]["name"]
        if name in self._kept:
            self._kept.discard(name)
            await self._kubelet.complete_deletion(name)
        elif pod["status"]["phase"] == "Pending":
            if not pod["spec"].get("nodeName"):
                await self._kubelet.bind(name)
            await self._kubelet.start(name)

    def _notice(self, before: Object | None, after: Object | None) -> None:
        if before is None or after is None or _content(before) != _content(after):
            self.moved = asyncio.get_running_loop().time()
        if after is None or after["kind"] != "Pod" or not after["metadata"].get("deletionTimestamp"):
            return
        name = after["metadata"]["name"]
        if name not in self._kept:
            task = asyncio.create_task(self._kubelet.complete_deletion(name))
            self._reaping.add(task)
            task.add_done_callback(self._reaping.discard)

    async def _make_namespace(self) -> None:
        await self._client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        )
        with suppress(AlreadyExists):
            account = {"name": "default", "namespace": self.namespace}
            await self._client.create(
                SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}
            )


Look = tuple[int, dict[str, Snapshot], dict[str, Snapshot]]
"""The number of the step, and what each side shows of each case after it."""


async def run_in_lockstep(cases: Sequence[Case], one: Side, other: Side) -> AsyncIterator[Look]:
    """Submits all cases on both sides, plays them step by step, and shows both sides after each."""
    await asyncio.gather(*(side.submit(case) for case in cases for side in (one, other)))
    for step in range(1 + max(len(case.steps) for case in cases)):
        alive = [case for case in cases if len(case.steps) >= step]
        if step:
            await asyncio.gather(*(side.play(case, case.steps[step - 1]) for case in alive for side in (one, other)))
        await _rest(one, other)
        yield step, await one.look(alive), await other.look(alive)


async def _rest(*sides: Side) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _PATIENCE_SECONDS
    await asyncio.gather(*(side.answer() for side in sides))
    while (now := loop.time()) < deadline:
        still = now - max(side.moved for side in sides)
        if still >= _REST_SECONDS:
            return
        await asyncio.sleep(_REST_SECONDS - still)


def _content(obj: Object) -> Object:
    """Without what a write that changes nothing changes: Go notes once a second that it still waits for a gang."""
    status = {name: value for name, value in (obj.get("status") or {}).items() if name != "lastReconcileTime"}
    written = {"resourceVersion": None, "managedFields": None}
    return {**obj, "metadata": {**obj["metadata"], **written}, "status": status}


def _whole(obj: Object) -> Object:
    return obj
