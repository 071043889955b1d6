"""The controller of all kinds that own pods: one queue and one cache of pods for all of them.

The cache of pods is filled when the first ReplicaSet or Job exists, so that a cluster without any pays nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from trainwright.cluster.controllers.scheduler_filters import SchedulableNode
from trainwright.cluster.controllers.workloads.plans.job_pods import is_tracked
from trainwright.cluster.controllers.workloads.plans.owned_pods import selector_of
from trainwright.cluster.controllers.workloads.reconcile.deployment_controller import DeploymentController
from trainwright.cluster.controllers.workloads.reconcile.job_controller import JobController
from trainwright.cluster.controllers.workloads.reconcile.set_controllers import (
    DaemonSetController,
    ReplicaSetController,
    StatefulSetController,
)
from trainwright.cluster.controllers.workloads.reconcile.workload_caches import (
    BY_NAMESPACE,
    BY_OWNER,
    WorkloadCaches,
    object_store,
    owner_index,
)
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Conflict
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import Outcome, RequeueAfter
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store, raw_metadata
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.metadata import ObjectMeta, OwnerReference
from trainwright.objects.resources import (
    BATCH_JOBS,
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)

log = logging.getLogger(__name__)

_JOB_NAME = "batch.kubernetes.io/job-name"
_WORKLOADS = (DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS, BATCH_JOBS)

Reconcile = Callable[[Object], Awaitable[Outcome | None]]


class WorkloadController:
    def __init__(
        self, client: Client, recorder: EventRecorder, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._client = client
        self._stores = {resource.kind: object_store() for resource in _WORKLOADS}
        self._sets = self._stores[REPLICA_SETS.kind]
        self._jobs = self._stores[BATCH_JOBS.kind]
        self._pods = Store[Pod](indexes={BY_OWNER: lambda pod: [owner_index(pod.metadata)]})
        self._pods_needed = asyncio.Event()
        self._pod_reflector = Reflector(client, PODS, self._pods, convert=Pod, on_change=self._pod_changed)
        self._nodes = Store[SchedulableNode]()
        self._nodes_needed = asyncio.Event()
        self._node_reflector = Reflector(
            client, NODES, self._nodes, convert=SchedulableNode, on_change=self._node_changed
        )
        self._caches = WorkloadCaches(client, recorder, self._stores, self._pods, now)
        self._job_controller = JobController(self._caches)
        self._reconcilers = self._new_reconcilers()
        self._controller: Controller[ObjectKey] = Controller(
            self._reconcile, log=log, reflectors=[*map(self._reflector, _WORKLOADS)]
        )

    def _new_reconcilers(self) -> dict[str, Reconcile]:
        """The function that reconciles an object, by its kind."""
        caches = self._caches
        return {
            DEPLOYMENTS.kind: DeploymentController(caches).reconcile,
            REPLICA_SETS.kind: ReplicaSetController(caches).reconcile,
            STATEFUL_SETS.kind: StatefulSetController(caches).reconcile,
            DAEMON_SETS.kind: DaemonSetController(caches, self._nodes.all).reconcile,
            BATCH_JOBS.kind: self._job_controller.reconcile,
        }

    def _reflector(self, resource: Resource) -> Reflector[Object]:
        on_change = {REPLICA_SETS: self._set_changed, BATCH_JOBS: self._job_changed}.get(resource, self._changed)
        return Reflector(self._client, resource, self._stores[resource.kind], on_change=on_change)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_pods())
            group.create_task(self._watch_nodes())
            group.create_task(self._controller.run())

    async def _watch_pods(self) -> None:
        if (await self._client.list(PODS, label_selector=_JOB_NAME, limit=1)).items:
            self._pods_needed.set()  # pods of Jobs that were deleted while no controller ran
        await self._pods_needed.wait()
        await self._pod_reflector.run()

    async def _watch_nodes(self) -> None:
        """Only DaemonSets need nodes."""
        await self._nodes_needed.wait()
        await self._node_reflector.run()

    async def _reconcile(self, key: ObjectKey) -> Outcome | None:
        if key.kind == PODS.kind:
            await self._untrack(key)
            return None
        obj = self._stores[key.kind].get(key.namespaced_name)
        if obj is None:
            return None
        self._pods_needed.set()
        await self._pod_reflector.wait_for_sync()
        if key.kind == DAEMON_SETS.kind:
            self._nodes_needed.set()
            await self._node_reflector.wait_for_sync()
        try:
            return await self._reconcilers[key.kind](obj)
        except Conflict:
            return RequeueAfter(0)  # the object has changed meanwhile; its watch event follows

    async def _untrack(self, key: ObjectKey) -> None:
        pod = self._pods.get(key.namespaced_name)
        if pod is not None and self._job_of(pod) is None:
            await self._job_controller.untrack(pod)

    def _job_of(self, pod: Pod) -> Object | None:
        owner = pod.metadata.controller
        if owner is None or owner.kind != BATCH_JOBS.kind:
            return None
        job = self._jobs.get(f"{pod.metadata.namespace}/{owner.name}")
        return job if job is not None and job["metadata"]["uid"] == owner.uid else None

    # Changes

    def _changed(self, _before: Object | None, after: Object | None) -> None:
        self._enqueue(after)

    def _node_changed(self, before: SchedulableNode | None, after: SchedulableNode | None) -> None:
        if before is not None and after is not None and _placement(before) == _placement(after):
            return
        for daemon_set in self._stores[DAEMON_SETS.kind].all():
            self._enqueue(daemon_set)

    def _job_changed(self, before: Object | None, after: Object | None) -> None:
        self._enqueue(after)
        if before is not None and (after is None or after["metadata"]["uid"] != before["metadata"]["uid"]):
            self._job_controller.forget(before["metadata"]["uid"])
            for pod in self._pods.by_index(BY_OWNER, before["metadata"]["uid"]):
                self._enqueue_untracking(pod)

    def _set_changed(self, before: Object | None, after: Object | None) -> None:
        self._enqueue(after)
        self._enqueue_owners([raw_metadata(obj) for obj in (before, after) if obj is not None], DEPLOYMENTS)

    def _pod_changed(self, before: Pod | None, after: Pod | None) -> None:
        metadata = [pod.metadata for pod in (before, after) if pod is not None]
        self._enqueue_owners(metadata, REPLICA_SETS, BATCH_JOBS, STATEFUL_SETS, DAEMON_SETS)
        if after is not None and is_tracked(after) and self._job_of(after) is None:
            self._enqueue_untracking(after)
        if after is None:
            # A Deployment that recreates its pods waits for the last old one.
            owner = metadata[0].controller
            replica_set = self._sets.get(f"{metadata[0].namespace}/{owner.name}") if owner is not None else None
            if replica_set is not None:
                self._enqueue_owners([raw_metadata(replica_set)], DEPLOYMENTS)

    def _enqueue_untracking(self, pod: Pod) -> None:
        self._controller.queue.add(ObjectKey(PODS.kind, pod.metadata.namespace, pod.metadata.name))

    def _enqueue(self, obj: Object | None) -> None:
        if obj is not None:
            self._controller.queue.add(ObjectKey.of(obj))

    def _enqueue_owners(self, many: Sequence[ObjectMeta], *adopters: Resource) -> None:
        """Adds the controller of each object to the queue; for an orphan, all adopters whose selector matches it."""
        for metadata in many:
            owner = metadata.controller
            if owner is not None:
                if _is_ours(owner):
                    self._controller.queue.add(ObjectKey(owner.kind, metadata.namespace, owner.name))
                continue
            for resource in adopters:
                for adopter in self._stores[resource.kind].by_index(BY_NAMESPACE, metadata.namespace):
                    if selector_of(adopter).matches(metadata.labels):
                        self._enqueue(adopter)


def _is_ours(owner: OwnerReference) -> bool:
    return any((owner.api_version, owner.kind) == (ours.api_version, ours.kind) for ours in _WORKLOADS)


def _placement(node: SchedulableNode) -> object:
    """What decides whether pods of DaemonSets belong there: heartbeats do not."""
    return node.metadata.labels, node.spec
