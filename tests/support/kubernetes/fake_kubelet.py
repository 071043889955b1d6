"""A fake kubelet and scheduler for the real API server: pods get a status although nothing runs.

It registers a Node, binds pods to it, reports their status as a kubelet does and completes graceful deletion: each by
an explicit call, or automatically in `run`.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

from tests.support.background import in_background
from trainwright.api.kinds import KINDS
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, ApiError, Conflict, NotFound, Unreachable
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store, raw_metadata
from trainwright.kube.controller.workqueue import WorkQueue
from trainwright.objects import Object
from trainwright.objects.metadata import namespaced_name
from trainwright.objects.resources import NODES, PODS
from trainwright.objects.times import format_time

_WORKERS = 8


class FakeKubelet:
    """One node. Pods are named within `namespace`."""

    def __init__(self, client: Client, *, namespace: str, node: str = "fake") -> None:
        self._client = client
        self._namespace = namespace
        self._node = node
        self._addresses = itertools.count(2)

    async def register(self) -> None:
        """Creates the Node if it does not exist, and sets it Ready."""
        now = format_time(datetime.now(UTC))
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._node}}
        with suppress(AlreadyExists):
            await self._client.create(NODES, node)
        await self._client.patch(NODES, self._node, {"status": {"conditions": [condition]}}, subresource="status")

    async def fall_silent(self, *, since: datetime) -> None:
        """Sets the Node's Ready condition to Unknown, as the node lifecycle controller does for a lost node."""
        stamp = format_time(since)
        condition = {"type": "Ready", "status": "Unknown", "lastHeartbeatTime": stamp, "lastTransitionTime": stamp}
        await self._client.patch(NODES, self._node, {"status": {"conditions": [condition]}}, subresource="status")

    async def leave(self) -> None:
        """Deletes the Node."""
        await self._client.delete(NODES, self._node)

    async def bind(self, pod: str) -> None:
        """Binds the pod to the node, as a scheduler does."""
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod, "namespace": self._namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self._node},
        }
        await self._client.create(PODS, binding, namespace=self._namespace, subresource="binding")

    async def start(self, pod: str, *, restarts: int = 0, version: str | None = None) -> None:
        """All containers run, after so many restarts. With `version` only if the pod still has this resourceVersion."""
        address = f"10.1.{(n := next(self._addresses)) // 256}.{n % 256}"
        state = {"running": {"startedAt": _now()}}
        network = {"podIP": address, "startTime": _now()}
        await self._report(
            pod, phase="Running", state=state, ready=True, restarts=restarts, version=version, more=network
        )

    async def wait(self, pod: str, *, reason: str, message: str = "") -> None:
        """All containers wait with this reason, for their first start."""
        state = {"waiting": {"reason": reason, "message": message}}
        await self._report(pod, phase="Pending", state=state, ready=False, more={})

    async def back_off(self, pod: str, *, message: str) -> None:
        """All containers wait for their next start, because they have failed repeatedly."""
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
        await self._report(pod, phase="Running", state=state, ready=False, more={})

    async def finish(self, pod: str, *, exit_code: int = 0, reason: str = "", message: str = "") -> None:
        """All containers have terminated with this exit code and are not restarted."""
        state = {
            "terminated": {
                "exitCode": exit_code,
                "reason": "Completed" if exit_code == 0 else "Error",
                "startedAt": _now(),
                "finishedAt": _now(),
            }
        }
        phase = "Succeeded" if exit_code == 0 else "Failed"
        why = {"reason": reason, "message": message} if reason else {}
        await self._report(pod, phase=phase, state=state, ready=False, more=why)

    async def leave_unscheduled(self, pod: str, *, message: str) -> None:
        """Reports that no node fits the pod, as a scheduler does."""
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": message,
            "lastTransitionTime": _now(),
        }
        await self._client.patch(
            PODS, pod, {"status": {"conditions": [condition]}}, namespace=self._namespace, subresource="status"
        )

    async def end_container(self, pod: str, index: int, *, exit_code: int, message: str = "") -> None:
        """One container of a running pod has terminated, the others run on."""
        seen = await self._client.get(PODS, pod, namespace=self._namespace)
        containers = seen["status"]["containerStatuses"]
        ended = {"exitCode": exit_code, "reason": "Error", "message": message, "finishedAt": _now()}
        containers[index].update(ready=False, started=False, state={"terminated": ended})
        await self._client.patch(
            PODS, pod, {"status": {"containerStatuses": containers}}, namespace=self._namespace, subresource="status"
        )

    async def complete_deletion(self, pod: str, *, uid: str | None = None) -> None:
        """Removes a terminating pod, as a kubelet does when its processes have ended. With `uid` only this very pod."""
        with suppress(NotFound):
            await self._client.delete(PODS, pod, namespace=self._namespace, uid=uid, grace_period_seconds=0)

    async def run(self) -> None:
        """Binds and starts new pods and completes the deletion of terminating ones, until it is cancelled."""
        store: Store[Object] = Store()
        queue = WorkQueue[str]()

        def changed(before: Object | None, after: Object | None) -> None:
            queue.add(namespaced_name(after or before or {}))

        reflector = Reflector(self._client, PODS, store, namespace=self._namespace, on_change=changed)
        async with asyncio.TaskGroup() as group:
            group.create_task(reflector.run())
            for _ in range(_WORKERS):
                group.create_task(self._work(store, queue))

    async def _work(self, store: Store[Object], queue: WorkQueue[str]) -> None:
        while True:
            key = await queue.get()
            try:
                if (pod := store.get(key)) and not await self._advance(pod):
                    queue.add_after(key, 0.01)
            except (NotFound, Conflict):
                pass  # the pod was deleted or bound by another client
            except (ApiError, Unreachable):
                queue.retry(key)
            finally:
                queue.done(key)

    async def _advance(self, pod: Object) -> bool:
        """Takes the next step of a pod; False if it must be tried again later. A pod with scheduling gates waits."""
        name = pod["metadata"]["name"]
        if pod["metadata"].get("deletionTimestamp"):
            await self.complete_deletion(name, uid=pod["metadata"]["uid"])
        elif pod["spec"].get("schedulingGates"):
            return True
        elif not pod["spec"].get("nodeName"):
            await self.bind(name)
        elif pod["status"]["phase"] == "Pending":
            if not await self._job_has_status(pod):
                return False
            # The cache may be outdated: a pod that has ended must not start again.
            await self.start(name, version=pod["metadata"]["resourceVersion"])
        return True

    async def _job_has_status(self, pod: Object) -> bool:
        """True if the pod's job has a status. A real container starts later than the operator writes one."""
        owner = raw_metadata(pod).controller
        if owner is None or owner.kind not in KINDS:
            return True
        job = await self._client.get(KINDS[owner.kind].resource, owner.name, namespace=self._namespace)
        return "status" in job

    async def _report(
        self,
        name: str,
        *,
        phase: str,
        state: Object,
        ready: bool,
        restarts: int = 0,
        version: str | None = None,
        more: Object,
    ) -> None:
        pod = await self._client.get(PODS, name, namespace=self._namespace)
        containers = [
            {
                "name": container["name"],
                "image": container["image"],
                "imageID": container["image"],
                "containerID": f"fake://{pod['metadata']['uid']}/{container['name']}",
                "ready": ready,
                "started": ready,
                "restartCount": restarts,
                "state": state,
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}} if restarts else {},
            }
            for container in pod["spec"]["containers"]
        ]
        condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": _now()}
        status = {"phase": phase, "containerStatuses": containers, "conditions": [condition], **more}
        seen = {"metadata": {"resourceVersion": version}} if version else {}
        await self._client.patch(
            PODS, name, {**seen, "status": status}, namespace=self._namespace, subresource="status"
        )


@asynccontextmanager
async def running_kubelet(client: Client, namespace: str) -> AsyncIterator[FakeKubelet]:
    """Within the block every pod of the namespace is bound, started and, once deleted, removed."""
    kubelet = FakeKubelet(client, namespace=namespace)
    await kubelet.register()
    async with in_background(kubelet.run()):
        yield kubelet


def _now() -> str:
    return format_time(datetime.now(UTC))
