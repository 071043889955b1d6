"""Two operators on one API server run the same cases in two namespaces, step by step.

After every step both settle, and a snapshot of each job is taken. Fake kubelets do exactly the same on both sides.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress

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
from tests.support.differential.snapshots import EXTRAS, Snapshot, snapshots
from tests.support.kubernetes.fake_kubelet import FakeKubelet
from tests.support.objects.jobs import JobBuilder
from tests.support.waiting import eventually
from trainwright.api.kinds import Kind
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, Conflict, NotFound
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.gangs import GangScheduler
from trainwright.objects.resources import AUTOSCALERS, EVENTS, NAMESPACES, PODS, SERVICE_ACCOUNTS, SERVICES

_SETTLED_SECONDS = 1.0
"""An operator that has written nothing for so long has settled, unless it takes longer to reconcile a new job."""
_MAX_WAIT_SECONDS = 60.0
"""An operator that keeps retrying a job never settles; after this time its back-off is long."""

_PARALLEL_REQUESTS = 16
_numbers = itertools.count(1)


class Side:
    """One operator's namespace. `last_write` is the time of the last change in it, by the event loop's clock."""

    def __init__(
        self, client: Client, namespace: str, kinds: Iterable[Kind], *, gang: GangScheduler | None = None
    ) -> None:
        self.namespace = namespace
        self.last_write = 0.0
        self._gang = gang
        self._kinds = tuple(kinds)
        self._resources = [kind.resource for kind in self._kinds] + [PODS, SERVICES, AUTOSCALERS, EVENTS, *EXTRAS]
        self._resources += [gang.resource] if gang else []
        self._client = client
        self._kubelet = FakeKubelet(client, namespace=namespace)
        self._requests = asyncio.Semaphore(_PARALLEL_REQUESTS)
        self._held_pods: set[str] = set()
        self._deletions: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Side"]:
        """Within the block the namespace exists, its objects are watched, and terminating pods are removed."""
        await self._make_namespace()
        await self._kubelet.register()
        watches = [
            Reflector(self._client, resource, Store[Object](), namespace=self.namespace, on_change=self._on_change)
            for resource in self._resources
        ]
        tasks = [asyncio.create_task(watch.run()) for watch in watches]
        try:
            yield self
        finally:
            for task in (*tasks, *self._deletions):
                task.cancel()
            await asyncio.gather(*tasks, *self._deletions, return_exceptions=True)
            await self._client.delete(NAMESPACES, self.namespace)

    async def submit(self, case: Case) -> None:
        manifest = {**case.manifest, "metadata": {**case.manifest["metadata"], "namespace": self.namespace}}
        async with self._requests:
            await self._client.create(case.kind.resource, manifest)

    async def perform(self, case: Case, actions: Iterable[Action]) -> None:
        """Actions on objects that an operator has deleted have no effect."""
        for action in actions:
            async with self._requests:
                with suppress(NotFound, Conflict):
                    await self._perform(case, action)

    async def wait_for_operator(self) -> float:
        """Waits until the operator has reconciled a new job of every kind; returns the seconds that it took."""
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(self._wait_for_controller(kind) for kind in self._kinds))
        return asyncio.get_running_loop().time() - began

    async def snapshots(self, cases: Sequence[Case]) -> dict[str, Snapshot]:
        listed = {
            resource: (await self._client.list(resource, namespace=self.namespace)).items
            for resource in self._resources
        }
        return snapshots(cases, listed, namespace=self.namespace)

    async def _wait_for_controller(self, kind: Kind) -> None:
        builder = JobBuilder(f"marker-{next(_numbers)}", kind=kind, namespace=self.namespace)
        marker = builder.replica(kind.roles[0].name).suspend().manifest()
        name = marker["metadata"]["name"]
        await self._client.create(kind.resource, marker)
        await eventually(
            lambda: self._client.get(kind.resource, name, namespace=self.namespace),
            lambda seen: (seen.get("status") or {}).get("conditions"),
            seconds=60,
        )
        await self._client.delete(kind.resource, name, namespace=self.namespace)

    async def _perform(self, case: Case, action: Action) -> None:
        match action:
            case Start():
                await asyncio.gather(*(self._start(pod) for pod in await self._pods(case)))
            case Admit():
                await self._admit(case)
            case Change(spec):
                await self._client.patch(case.kind.resource, case.name, {"spec": spec}, namespace=self.namespace)
            case DeleteService(pod):
                await self._client.delete(SERVICES, f"{case.name}-{pod}", namespace=self.namespace)
            case Delete(pod, slowly):
                if slowly:
                    self._held_pods.add(f"{case.name}-{pod}")
                await self._client.delete(PODS, f"{case.name}-{pod}", namespace=self.namespace)
            case _:
                await self._report(f"{case.name}-{action.pod}", action)

    async def _report(self, pod: str, action: PodReport) -> None:
        """Reports what a kubelet or a scheduler observes of a pod."""
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
        """Only Volcano needs it: its pods wait for the PodGroup's phase."""
        if self._gang and self._gang.is_volcano:
            phase = {"status": {"phase": "Inqueue"}}
            await self._client.patch(
                self._gang.resource, case.name, phase, namespace=self.namespace, subresource="status"
            )

    async def _pods(self, case: Case) -> list[Object]:
        found = (await self._client.list(PODS, namespace=self.namespace)).items
        return [pod for pod in found if pod["metadata"]["name"].startswith(f"{case.name}-")]

    async def _start(self, pod: Object) -> None:
        """Starts a pending pod, and removes one that was deleted slowly."""
        name = pod["metadata"]["name"]
        if name in self._held_pods:
            self._held_pods.discard(name)
            await self._kubelet.complete_deletion(name)
        elif pod["status"]["phase"] == "Pending":
            if not pod["spec"].get("nodeName"):
                await self._kubelet.bind(name)
            await self._kubelet.start(name)

    def _on_change(self, before: Object | None, after: Object | None) -> None:
        if before is None or after is None or _content(before) != _content(after):
            self.last_write = asyncio.get_running_loop().time()
        if after is None or after["kind"] != "Pod" or not after["metadata"].get("deletionTimestamp"):
            return
        name = after["metadata"]["name"]
        if name not in self._held_pods:
            task = asyncio.create_task(self._kubelet.complete_deletion(name))
            self._deletions.add(task)
            task.add_done_callback(self._deletions.discard)

    async def _make_namespace(self) -> None:
        await self._client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        )
        with suppress(AlreadyExists):
            account = {"name": "default", "namespace": self.namespace}
            await self._client.create(
                SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}
            )


Snapshots = tuple[int, dict[str, Snapshot], dict[str, Snapshot]]
"""The number of a step, and the snapshots of each side after it by case."""


async def run_in_lockstep(cases: Sequence[Case], one: Side, other: Side) -> AsyncIterator[Snapshots]:
    """Submits all cases on both sides, performs their steps, and yields the snapshots after each."""
    await asyncio.gather(*(side.submit(case) for case in cases for side in (one, other)))
    for step in range(1 + max(len(case.steps) for case in cases)):
        alive = [case for case in cases if len(case.steps) >= step]
        if step:
            await asyncio.gather(*(side.perform(case, case.steps[step - 1]) for case in alive for side in (one, other)))
        await _settle(one, other)
        yield step, await one.snapshots(alive), await other.snapshots(alive)


async def _settle(*sides: Side) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _MAX_WAIT_SECONDS
    silence = max(_SETTLED_SECONDS, *await asyncio.gather(*(side.wait_for_operator() for side in sides)))
    while (now := loop.time()) < deadline:
        still = now - max(side.last_write for side in sides)
        if still >= silence:
            return
        await asyncio.sleep(silence - still)


def _content(obj: Object) -> Object:
    """Without fields whose change has no effect: the Go operator updates one every second while a gang is pending."""
    status = {name: value for name, value in (obj.get("status") or {}).items() if name != "lastReconcileTime"}
    written = {"resourceVersion": None, "managedFields": None}
    return {**obj, "metadata": {**obj["metadata"], **written}, "status": status}


def _whole(obj: Object) -> Object:
    return obj
