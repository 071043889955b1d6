"""The operator as a part that any process can run: watches, a queue, workers that reconcile.

It knows a cluster only through its client; `trainwright operator` runs one beside a real cluster, `trainwright up` one
inside the embedded cluster's process.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from trainwright.api.job import is_managed_elsewhere
from trainwright.api.kinds import KINDS, Kind
from trainwright.api.labels import JOB_NAME
from trainwright.engine import Addressing, Companion, JobEvent, ServiceView, Settings
from trainwright.engine.framework import Framework
from trainwright.engine.frameworks import FRAMEWORKS
from trainwright.kube.client.async_client import Client
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.workqueue import QueueShutDown, WorkQueue
from trainwright.objects import Object
from trainwright.objects.metadata import object_key
from trainwright.objects.nodes import Node
from trainwright.objects.pods import Pod
from trainwright.objects.resources import AUTOSCALERS, NODES, PRIORITY_CLASSES, Resource
from trainwright.operator.reconcile.applier import Applier
from trainwright.operator.reconcile.caches import Caches, Jobs, PriorityClass, Views
from trainwright.operator.reconcile.event_buffer import Announcer
from trainwright.operator.reconcile.outcome import Again, Done, GiveUp, Outcome, Retry
from trainwright.operator.reconcile.reconciler import Reconciler
from trainwright.operator.serving.observer import Observer

log = logging.getLogger(__name__)

T = TypeVar("T")

_FINISH_SECONDS, _FAREWELL_SECONDS = 4.0, 2.0
"""How long a stop waits for writes, and then for events: together less than the grace of a pod, which is 10 seconds in
upstream's manifests."""


class Operator:
    """Looks after all jobs of `kinds`, in one namespace or in all. Create it where the event loop runs.

    `controller_threads` jobs are looked at at the same time, each by one worker; `parallel_writes` bounds what all of
    them write at the same time. `outlook` names what else it may watch beside jobs and their children: Nodes and
    PriorityClasses. `lead` returns when this process may write: until then it only watches. `forgetful` names the
    kinds whose CRD, as far as is known beforehand, keeps no status field of ours.

    `synced` is set once it knows the cluster, `ready` once it has begun to work.
    """

    def __init__(
        self,
        client: Client,
        *,
        kinds: Mapping[str, Kind] = KINDS,
        frameworks: Mapping[str, Framework] = FRAMEWORKS,
        settings: Settings | None = None,
        namespace: str | None = None,
        outlook: Sequence[Resource] = (),
        observer: Observer | None = None,
        queue: WorkQueue | None = None,
        lead: Callable[[], Awaitable[None]] | None = None,
        forgetful: Iterable[str] = (),
        controller_threads: int = 64,
        parallel_writes: int = 32,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.synced = asyncio.Event()
        self.ready = asyncio.Event()
        self._client = client
        self._kinds = kinds
        self._settings = settings or Settings()
        self._namespace = namespace
        self._threads = controller_threads
        self._stopping = asyncio.Event()
        self._watches: Sequence[Reflector[Any]] = ()
        self._lead = lead
        self._observer = observer or Observer()
        if queue is None:
            # On one machine jobs are few, and a job takes two looks to start: its ports are written before its pods.
            on_one_machine = self._settings.addressing is Addressing.HOST_PORTS
            queue = WorkQueue(rest=0) if on_one_machine else WorkQueue()
        self._queue = queue
        self._caches = Caches(kinds, companions=_companions(self._settings), outlook=_outlook(self._settings, outlook))
        self._recorders = {name: EventRecorder(client, kind.controller) for name, kind in kinds.items()}
        self._announcer = Announcer(self._record, clock=clock)
        self._applier = Applier(
            client,
            self._caches,
            self._announcer,
            parallel_writes=parallel_writes,
            observer=self._observer,
            forgetful=forgetful,
        )
        self._reconciler = Reconciler(
            kinds=kinds,
            frameworks=frameworks,
            settings=self._settings,
            caches=self._caches,
            applier=self._applier,
            clock=clock,
        )

    @property
    def forgetful(self) -> frozenset[str]:
        """The kinds whose CRD keeps no status field of ours; an annotation does."""
        return frozenset(self._applier.statuses.forgetful)

    @property
    def missing(self) -> tuple[str, ...]:
        """What must be known before the work begins and is not, each with what is in the way."""
        return tuple(missing for reflector in self._watches if (missing := reflector.missing))

    def stop(self) -> None:
        """Ends `run` once the writes under way are done and their events are sent, as far as that is quickly done:
        whatever is left is planned again by the next one."""
        self._stopping.set()

    async def run(self) -> None:
        """Works until `stop` is called. Trouble with the cluster is waited out, never raised."""
        reflectors = self._watches = self._reflectors()
        try:
            async with asyncio.TaskGroup() as group:
                watching = [group.create_task(reflector.run()) for reflector in reflectors]
                starting = group.create_task(self._start(reflectors))
                stopping = group.create_task(self._stopping.wait())
                await asyncio.wait({stopping, starting}, return_when=asyncio.FIRST_COMPLETED)
                if starting.done():
                    starting.result()
                    await self._work_until_stopped()
                for task in (starting, *watching):
                    task.cancel()
        finally:
            self._announcer.flush()
            await asyncio.gather(*(recorder.close(_FAREWELL_SECONDS) for recorder in self._recorders.values()))

    async def _start(self, reflectors: Sequence[Reflector[Any]]) -> None:
        """Returns when we know the cluster and may write there."""
        for reflector in reflectors:
            await reflector.synced()
        self.synced.set()
        if self._lead is not None:
            await self._lead()
            # What the leader before us wrote may not have reached our watches yet, and what it counted must not be
            # counted again.
            await asyncio.gather(*(reflector.refresh() for reflector in reflectors))

    async def _work_until_stopped(self) -> None:
        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(self._work()) for _ in range(self._threads)]
            self.ready.set()
            for job in self._caches.all_jobs():
                self._look_at_job(job)
            await self._stopping.wait()
            self._queue.shut_down()
            _, late = await asyncio.wait(workers, timeout=_FINISH_SECONDS)
            for worker in late:
                worker.cancel()

    async def _work(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            try:
                key = await self._queue.get()
            except QueueShutDown:
                return
            began = clock()
            try:
                outcome = await self._reconcile(key)
                self._observer.reconciled(self._kinds[key.partition("/")[0]], outcome, clock() - began)
                self._settle(key, outcome)
            finally:
                self._queue.done(key)

    async def _reconcile(self, key: str) -> Outcome:
        kind, _, job = key.partition("/")
        try:
            return await self._reconciler.reconcile(kind, job)
        except Exception as error:
            # Whatever is wrong with one job, the others must not wait for it.
            log.exception("%s: unexpected error", key)
            self._observer.crashed(self._kinds[kind])
            return Retry(f"unexpected error: {error}")

    def _settle(self, key: str, outcome: Outcome) -> None:
        match outcome:
            case Retry(reason, seconds):
                pause = self._queue.retry(key, at_least=seconds)
                log.warning("%s: %s; trying again in %.3g s", key, reason, pause)
                return
            case Again(0):
                self._queue.add_rested(key)  # together with the news that what was written brings back
            case Again(seconds):
                self._queue.add_after(key, seconds)
            case GiveUp(reason):
                log.warning("%s: giving up: %s", key, reason)
                self._queue.cancel(key)
            case Done():
                self._queue.cancel(key)  # the deadline of a job that is gone may be months away
        self._queue.forget(key)

    def _record(self, job: Object, event: JobEvent, at: datetime) -> None:
        recorder = self._recorders[job["kind"]]
        recorder.record(job, event.type, event.reason, event.message, at=at, standing=event.standing)

    def _reflectors(self) -> Sequence[Reflector[Any]]:
        caches = self._caches
        jobs = (self._watch(one, one.read, self._on_job_change) for one in caches.jobs.values())
        children = (
            self._watch(one, one.view, self._on_child_change, label_selector=JOB_NAME)
            for one in (caches.pods, caches.services)
        )
        companions = (self._watch(one, one.view, self._on_companion_change) for one in caches.companions.values())
        nodes = [self._watch(caches.nodes, Node, self._on_node_change)] if caches.nodes else ()
        priorities = [self._watch(caches.priorities, PriorityClass)] if caches.priorities else ()
        return [*jobs, *children, *companions, *nodes, *priorities]

    def _watch(
        self,
        cache: Jobs | Views[Any],
        convert: Callable[[Object], T] | type[T],
        on_change: Callable[[T | None, T | None], None] | None = None,
        *,
        label_selector: str = "",
    ) -> Reflector[T]:
        """Keeps the cache in step with the cluster, as far as we look after it."""
        return Reflector(
            self._client,
            cache.resource,
            cache.store,
            convert=convert,
            namespace=self._namespace if cache.resource.namespaced else None,
            label_selector=label_selector,
            on_change=on_change,
        )

    def _look_at_job(self, job: Object) -> None:
        """One that nobody has looked at goes first: its pods are worth more than the news of those that have theirs."""
        if self.ready.is_set() and not job.get("status"):
            self._queue.add_new(_key(job))
        else:
            self._look_at(_key(job))

    def _look_at(self, key: str) -> None:
        """What a watch tells comes in storms: the pods of a job start and end together, and every write of ours comes
        back. A look for each would write a status for each.

        Before there are workers nothing lines up: a standby may see jobs come and go for months."""
        if self.ready.is_set():
            self._queue.add_rested(key)

    def _look_at_known(self, kind: str, job: str) -> None:
        """For news of others. A job that is not known is looked at when it comes; most may never: every autoscaler of
        the cluster has a name that a job could have."""
        if self._caches.jobs[kind].store.get(job) is not None:
            self._look_at(f"{kind}/{job}")

    def _on_job_change(self, before: Object | None, after: Object | None) -> None:
        job = after or before
        if job is not None:
            self._look_at_job(job)
        if before is not None and self.ready.is_set() and _has_gone(before, after):
            self._observer.job_deleted(self._kinds[before["kind"]], before)

    def _on_child_change(self, before: Pod | ServiceView | None, after: Pod | ServiceView | None) -> None:
        child = after or before
        if child is None:
            return
        metadata = child.metadata
        owner = metadata.controller
        if owner and owner.kind in self._kinds:
            self._look_at_known(owner.kind, f"{metadata.namespace}/{owner.name}")
            return
        # An object of somebody else may hold a name that a job of any kind waits for.
        for kind in self._kinds:
            self._look_at_known(kind, f"{metadata.namespace}/{metadata.labels.get(JOB_NAME, '')}")

    def _on_companion_change(self, before: Companion | None, after: Companion | None) -> None:
        companion = after or before
        if companion is None:
            return
        # Whoever controls it: its name is the one that a job of any kind would use.
        for kind in self._kinds:
            self._look_at_known(kind, f"{companion.metadata.namespace}/{companion.metadata.name}")

    def _on_node_change(self, before: Node | None, after: Node | None) -> None:
        """A node that went or came back matters to the jobs that have pods there; its other news to none."""
        node = after or before
        same = before is not None and after is not None and before.ready == after.ready
        if node is None or same or not self.ready.is_set():
            return
        for pod in self._caches.pods.store.all():
            if pod.spec.node_name == node.metadata.name:
                self._on_child_change(pod, pod)


def _key(job: Object) -> str:
    return f"{job['kind']}/{object_key(job)}"


def _has_gone(before: Object, after: Object | None) -> bool:
    """Whether a job of ours is no longer there; another one may have its name."""
    gone = after is None or after["metadata"]["uid"] != before["metadata"]["uid"]
    return gone and not is_managed_elsewhere(before)


def _companions(settings: Settings) -> Sequence[Resource]:
    """The kinds of which a job may have one, as far as this cluster has them."""
    gang = (settings.gang.resource,) if settings.gang else ()
    return (*gang, AUTOSCALERS) if settings.autoscaling else gang


def _outlook(settings: Settings, allowed: Sequence[Resource]) -> Sequence[Resource]:
    """What is watched beside jobs and children: Nodes for their ports too, PriorityClasses for gangs alone."""
    nodes = (NODES,) if NODES in allowed or settings.addressing is Addressing.HOST_PORTS else ()
    return (*nodes, PRIORITY_CLASSES) if PRIORITY_CLASSES in allowed and settings.gang else nodes
