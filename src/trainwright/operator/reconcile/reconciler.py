"""One look at one job: read what is known, ask the engine, carry out its plan, say how it ended."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from trainwright.api.errors import InvalidJob
from trainwright.api.job import Job, read_job, salvage_job
from trainwright.api.kinds import Kind
from trainwright.engine import Addressing, Plan, Settings, plan
from trainwright.engine.framework import Framework
from trainwright.engine.frameworks import FRAMEWORKS
from trainwright.kube.client.errors import ApiError, Conflict, NotFound, Unreachable
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import Done, Outcome, RequeueAfter, Retry, Terminal
from trainwright.objects import Object
from trainwright.operator.reconcile.applier import Applier, Unacceptable
from trainwright.operator.reconcile.caches import Caches
from trainwright.operator.reconcile.port_ledger import PortReservations, listening_ports, ports_of_others

CATCH_UP_SECONDS = 1.0
"""After a conflict the watch brings the newer job and wakes us; this is for a conflict that nothing newer explains."""


class Reconciler:
    """Remembers nothing between two looks at a job but the ports of plans in flight: all it knows is in the caches."""

    def __init__(
        self,
        *,
        kinds: Mapping[str, Kind],
        settings: Settings,
        caches: Caches,
        applier: Applier,
        clock: Callable[[], datetime],
        frameworks: Mapping[str, Framework] = FRAMEWORKS,
    ) -> None:
        self._kinds = kinds
        self._frameworks = frameworks
        self._settings = settings
        self._caches = caches
        self._applier = applier
        self._clock = clock
        self._reservations = PortReservations()

    async def reconcile(self, key: ObjectKey) -> Outcome:
        """Never raises for what a cluster or a user can do."""
        kind = self._kinds[key.kind]
        if trouble := await self._clear_doubt(kind, key):
            return trouble
        job = self._caches.jobs[key.kind].store.get(key.namespaced_name)
        if job is None:
            self._applier.forget(key)
            return Done()
        if job["metadata"].get("deletionTimestamp"):
            return Done()  # its children go by garbage collection
        if self._applier.statuses.is_outdated(kind, job):
            return await self._move_memory(kind, job)
        try:
            return await self._pursue(kind, job, self._read(job, kind))
        except Unacceptable as refused:
            return await self._refuse(kind, key, job, str(refused))

    async def _pursue(self, kind: Kind, job: Object, typed: Job) -> Outcome:
        now = self._clock()
        decided = self._decide(typed, now)
        if trouble := await self._carry_out(kind, job, decided):
            return trouble
        if decided.status is not None or decided.creates or decided.deletes or decided.patches:
            return RequeueAfter(0)  # what comes next follows from what has just been done
        if decided.wake_at is not None:
            return RequeueAfter(max(0.0, (decided.wake_at - now).total_seconds()))
        return Terminal(typed.problem) if typed.problem else Done()

    async def _refuse(self, kind: Kind, key: ObjectKey, job: Object, problem: str) -> Outcome:
        """What the server says about the job's children is the job's end, as if its own schema had said it."""
        present = self._caches.jobs[kind.name].store.get(key.namespaced_name)
        if present is None or present["metadata"].get("generation") != job["metadata"].get("generation"):
            return RequeueAfter(0)  # it was about a job that is another one now
        return await self._pursue(kind, present, replace(self._read(present, kind), problem=problem))

    async def _clear_doubt(self, kind: Kind, key: ObjectKey) -> Outcome | None:
        """None if it is known what became of the last status that was written."""
        try:
            await self._applier.statuses.clear_doubt(kind, key)
        except (ApiError, Unreachable) as error:
            return Retry.after(error, f"looking at the status that was written: {error}")
        return None

    async def _move_memory(self, kind: Kind, job: Object) -> Outcome:
        try:
            await self._applier.statuses.move_memory(kind, job)
        except Conflict:
            return RequeueAfter(CATCH_UP_SECONDS)
        except NotFound:
            return Done()
        except (ApiError, Unreachable) as error:
            return Retry.after(error, f"moving the memory into the status: {error}")
        return RequeueAfter(0)

    def _read(self, job: Object, kind: Kind) -> Job:
        try:
            return read_job(job, self._kinds)
        except InvalidJob as error:
            return salvage_job(job, kind, error)

    def _decide(self, job: Job, now: datetime) -> Plan:
        uid = job.metadata.uid
        observed = self._caches.observe(job.metadata, taken_ports=self._taken_ports(uid))
        decided = plan(job, observed, self._settings, now, frameworks=self._frameworks)
        # Nothing is awaited between looking at the ports and here, so no other plan can have chosen the same.
        self._reservations.reserve(uid, decided.status)
        return decided

    async def _carry_out(self, kind: Kind, job: Object, decided: Plan) -> Outcome | None:
        """None if all of it was done."""
        try:
            failures = await self._applier.apply(kind, job, decided)
        except Conflict:
            return RequeueAfter(CATCH_UP_SECONDS)
        except NotFound:
            return Done()  # deleted a moment ago
        except (ApiError, Unreachable) as error:
            return Retry.after(error, f"writing the status: {error}")
        finally:
            self._reservations.release(job["metadata"]["uid"])
        return max(failures, key=lambda failure: failure.seconds, default=None)

    def _taken_ports(self, uid: str) -> frozenset[int]:
        if self._settings.addressing is not Addressing.HOST_PORTS:
            return frozenset()
        pods = self._caches.pods.store.all()
        live = {owner.uid for pod in pods if not pod.finished and (owner := pod.metadata.controller)}
        return (
            self._reservations.taken(besides=uid)
            | ports_of_others(self._caches.all_jobs(), besides=uid, live=live)
            | listening_ports(node.metadata for node in (self._caches.nodes.store.all() if self._caches.nodes else ()))
        )
