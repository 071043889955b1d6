"""The controller of jobs: wires caches, event handlers, reconciler and event recorder to a `Controller`.

It reaches the cluster only through its client. `trainwright operator` runs one for a real cluster, `trainwright up` one
in the process of the embedded cluster.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from trainwright.api.job import is_managed_elsewhere
from trainwright.api.kinds import KINDS, Kind
from trainwright.api.labels import JOB_NAME
from trainwright.engine import ExtraView, JobEvent, ServiceView, Settings
from trainwright.engine.framework import ExtraResource, Framework
from trainwright.engine.frameworks import FRAMEWORKS
from trainwright.engine.policies.extra_objects import available_resources
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.deduplicator import Deduplicator
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import Outcome, Retry
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.workqueue import WorkQueue
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import Node
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.resources import NODES, PRIORITY_CLASSES, Resource
from trainwright.operator.reconcile.applier import Applier
from trainwright.operator.reconcile.caches import Caches, Jobs, PriorityClass, Views
from trainwright.operator.reconcile.event_buffer import EventBuffer
from trainwright.operator.reconcile.failure_reporter import FailureReporter, ReadRuns
from trainwright.operator.reconcile.observer import Observer
from trainwright.operator.reconcile.reconcile_context import ReconcileContext
from trainwright.operator.reconcile.reconciler import Reconciler
from trainwright.operator.reconcile.status_write_pacer import StatusWritePacer

log = logging.getLogger(__name__)

T = TypeVar("T")

Child = Pod | ServiceView | ExtraView

_EVENT_SECONDS = 2.0
"""How long `stop` waits for events, after `DRAIN_SECONDS` for writes. The sum must be less than the grace period of the
operator's pod, which is 10 seconds in upstream's manifests."""


class JobController:
    """Reconciles all jobs of `kinds`, in one namespace or in all. Create it in a running event loop.

    `controller_threads` is the maximum number of concurrent reconciliations, `parallel_writes` that of their writes.
    `cluster_resources` are the cluster-scoped resources that it may watch: Nodes and PriorityClasses. `lead` returns
    when this process is the leader; until then it only watches. `prunes_status` are the kinds whose CRD is already
    known to prune our status fields. `read_runs` reads what the nodes recorded about the runs of a job's containers,
    where they are on this machine; elsewhere `read_failed_pod_logs` allows to read the logs of failed pods.

    `synced` is set when all caches are filled, `ready` when the workers start. `caches`, `queue` and `recorder` show
    what it knows and what it has still to do.
    """

    def __init__(
        self,
        client: Client,
        *,
        kinds: Mapping[str, Kind] = KINDS,
        frameworks: Mapping[str, Framework] = FRAMEWORKS,
        settings: Settings | None = None,
        namespace: str | None = None,
        cluster_resources: Sequence[Resource] = (),
        observer: Observer | None = None,
        queue: WorkQueue[ObjectKey] | None = None,
        lead: Callable[[], Awaitable[None]] | None = None,
        prunes_status: Iterable[str] = (),
        read_runs: ReadRuns | None = None,
        read_failed_pod_logs: bool = False,
        controller_threads: int = 64,
        parallel_writes: int = 32,
        pacer: StatusWritePacer | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.ready = asyncio.Event()
        self._client = client
        self._kinds = kinds
        self._settings = settings or Settings()
        self._namespace = namespace
        self._lead = lead
        self._observer = observer or Observer()
        self.queue = queue if queue is not None else _new_queue(self._settings)
        self.caches = Caches(
            kinds,
            extras=_extra_resources(kinds, frameworks, self._settings),
            cluster_resources=_cluster_resources(self._settings, cluster_resources),
        )
        self.recorder = EventRecorder(client)
        self._errors = Deduplicator[ObjectKey, tuple[str, str]]()
        self._events = EventBuffer(self._record, clock=clock)
        self._context = ReconcileContext(client, self.caches, self._events, self._observer, set(prunes_status))
        self._applier = Applier(self._context, parallel_writes=parallel_writes)
        self._failures = FailureReporter(self._context, read_runs=read_runs, read_logs=read_failed_pod_logs)
        self._applier.status_writer.on_failed = self._failures.job_failed
        self._applier.on_back_off = self._failures.job_backs_off
        self._reconciler = Reconciler(
            kinds=kinds,
            frameworks=frameworks,
            settings=self._settings,
            caches=self.caches,
            applier=self._applier,
            clock=clock,
            pacer=pacer,
        )
        self._controller = Controller(
            self._reconciler.reconcile,
            log=log,
            reflectors=self._reflectors(),
            queue=self.queue,
            workers=controller_threads,
            before_work=self._before_work,
            on_reconciled=self._on_reconciled,
            on_error=self._on_error,
            retry_log_level=logging.WARNING,
        )
        self.synced = self._controller.synced

    @property
    def prunes_status(self) -> frozenset[str]:
        """The kinds whose CRD prunes our status fields; an annotation of the job keeps these fields."""
        return frozenset(self._context.prunes_status)

    @property
    def sync_errors(self) -> tuple[str, ...]:
        """The resources that have not been listed yet, each with the error if there is one."""
        return tuple(error for reflector in self._controller.reflectors if (error := reflector.sync_error))

    def stop(self) -> None:
        """Ends `run` once the writes in progress are done and their events are recorded, within a bounded time. The
        next operator plans the rest again."""
        self._controller.stop()

    async def run(self) -> None:
        """Runs until `stop` is called. Errors of the cluster are retried, never raised."""
        try:
            await self._controller.run()
        finally:
            await self._failures.close()
            self._events.flush()
            await self.recorder.close(_EVENT_SECONDS)

    async def _before_work(self) -> None:
        if self._lead is not None:
            await self._lead()
            # Our watches may lag behind the writes of the previous leader. Without a fresh list we would count the
            # failures again that it has counted.
            await self._controller.relist()
        try:
            await self._applier.label_extra_objects(self._namespace)
        except (ApiError, Unreachable) as error:
            log.warning("extra objects of finished jobs that lack the label %s may stay: %s", JOB_NAME, error)
        self.ready.set()
        for job in self.caches.all_jobs():
            self._enqueue_job(job)
            kind = self._kinds[job["kind"]]
            if not is_managed_elsewhere(job):
                self._failures.resume(kind, job)

    def _on_reconciled(self, key: ObjectKey, outcome: Outcome, seconds: float) -> None:
        self._observer.reconciled(self._kinds[key.kind], outcome, seconds)
        if key in self._errors and not isinstance(outcome, Retry):
            self._errors.forget(key)

    def _on_error(self, key: ObjectKey, error: Exception) -> None:
        self._observer.crashed(self._kinds[key.kind])
        job = self.caches.jobs[key.kind].store.get(key.namespaced_name)
        name = type(error).__name__
        if job is not None and self._errors.first(key, (job["metadata"]["uid"], name)):
            self._events.record(job, JobEvent("Warning", "ReconcileError", _explain(name), standing=True))

    def _record(self, job: Object, event: JobEvent, at: datetime) -> None:
        component = self._kinds[job["kind"]].controller
        self.recorder.record(
            job, event.type, event.reason, event.message, at=at, standing=event.standing, component=component
        )

    def _reflectors(self) -> Sequence[Reflector[Any]]:
        caches = self.caches
        jobs = (self._watch(cache, cache.read, self.on_job_change) for cache in caches.jobs.values())
        labelled: list[Views[Any]] = [caches.pods, caches.services, *caches.extras.values()]
        children = (
            self._watch(views, views.convert, self.on_child_change, label_selector=JOB_NAME) for views in labelled
        )
        nodes = [self._watch(caches.nodes, Node, self._on_node_change)] if caches.nodes else ()
        priorities = [self._watch(caches.priorities, PriorityClass)] if caches.priorities else ()
        return [*jobs, *children, *nodes, *priorities]

    def _watch(
        self,
        cache: Jobs | Views[Any],
        convert: Callable[[Object], T] | type[T],
        on_change: Callable[[T | None, T | None], None] | None = None,
        *,
        label_selector: str = "",
    ) -> Reflector[T]:
        """Keeps the cache up to date with the cluster, or with one namespace of it."""
        return Reflector(
            self._client,
            cache.resource,
            cache.store,
            convert=convert,
            namespace=self._namespace if cache.resource.namespaced else None,
            label_selector=label_selector,
            on_change=on_change,
        )

    def _enqueue_job(self, job: Object) -> None:
        """New jobs come first: creating their pods matters more than updating the status of running ones."""
        if self.ready.is_set() and not job.get("status"):
            self.queue.add_new(ObjectKey.of(job))
        else:
            self._enqueue(ObjectKey.of(job))

    def _enqueue(self, key: ObjectKey) -> None:
        """Watch events come in bursts: the pods of a job start and end together, and the watch returns our own writes.
        Coalescing saves a status write for each event.

        A standby enqueues nothing: jobs may be created and deleted for months before it becomes the leader."""
        if self.ready.is_set():
            self.queue.add_coalesced(key)

    def _enqueue_if_known(self, key: ObjectKey) -> None:
        """For events of other objects, whose label may name a job that does not exist."""
        if self.caches.jobs[key.kind].store.get(key.namespaced_name) is not None:
            self._enqueue(key)

    def on_job_change(self, before: Object | None, after: Object | None) -> None:
        job = after or before
        if job is not None:
            self._enqueue_job(job)
        if before is not None and self.ready.is_set() and _was_deleted(before, after):
            self._observer.job_deleted(self._kinds[before["kind"]], before)
            self.caches.forget_claims(before["metadata"]["uid"])
            self._failures.forget(before["metadata"]["uid"])

    def on_child_change(self, before: Child | None, after: Child | None) -> None:
        child = after or before
        if child is None:
            return
        metadata = child.metadata
        owner = metadata.controller
        if owner and owner.kind in self._kinds:
            self._enqueue_if_known(ObjectKey(owner.kind, metadata.namespace, owner.name))
            return
        # An object of another owner may have a name that a job of any kind needs.
        for kind in self._kinds:
            self._enqueue_if_known(ObjectKey(kind, metadata.namespace, metadata.labels.get(JOB_NAME, "")))

    def _on_node_change(self, before: Node | None, after: Node | None) -> None:
        """A change of the Ready condition enqueues the jobs that have pods on the node."""
        node = after or before
        same = before is not None and after is not None and before.ready == after.ready
        if node is None or same or not self.ready.is_set():
            return
        for pod in self.caches.pods.store.all():
            if pod.spec.node_name == node.metadata.name:
                self.on_child_change(pod, pod)


def _new_queue(settings: Settings) -> WorkQueue[ObjectKey]:
    """Without coalescing on one machine: there are few jobs, and their users wait for them."""
    return WorkQueue(coalesce_seconds=0) if settings.one_machine else WorkQueue()


def _explain(error: str) -> str:
    return (
        f"failed to reconcile: unexpected {error} in the operator, which keeps trying; this is a defect of the "
        "operator: its log has the details, please report them"
    )


def _was_deleted(before: Object, after: Object | None) -> bool:
    """True if a job that this operator manages was deleted, even if another one of its name exists already."""
    deleted = after is None or after["metadata"]["uid"] != before["metadata"]["uid"]
    return deleted and not is_managed_elsewhere(before)


def _extra_resources(
    kinds: Mapping[str, Kind], frameworks: Mapping[str, Framework], settings: Settings
) -> list[ExtraResource]:
    """The resources of all objects that jobs of these kinds may have besides pods and Services."""
    declared = {
        extra.resource: extra for kind in kinds.values() for extra in frameworks[kind.framework].extra_resources
    }
    return [*available_resources(tuple(declared.values()), settings)]


def _cluster_resources(settings: Settings, allowed: Sequence[Resource]) -> Sequence[Resource]:
    """The cluster-scoped resources to watch: PriorityClasses only for gang scheduling."""
    nodes = (NODES,) if NODES in allowed else ()
    return (*nodes, PRIORITY_CLASSES) if PRIORITY_CLASSES in allowed and settings.gang else nodes
