"""Reconciles one job: reads the caches, gets a plan from the engine, applies it and returns the outcome."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from trainwright.api.errors import InvalidJob
from trainwright.api.job import Job, read_job, salvage_job
from trainwright.api.kinds import Kind
from trainwright.engine import Plan, Settings, plan
from trainwright.engine.framework import Framework
from trainwright.engine.frameworks import FRAMEWORKS
from trainwright.kube.client.errors import ApiError, Conflict, NotFound, Unreachable
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import Done, Outcome, RequeueAfter, Retry, Terminal
from trainwright.objects import Object
from trainwright.operator.reconcile.applier import Applier
from trainwright.operator.reconcile.caches import Caches
from trainwright.operator.reconcile.child_write_events import InvalidChild
from trainwright.operator.reconcile.status_write_pacer import StatusWritePacer

log = logging.getLogger(__name__)

CATCH_UP_SECONDS, LONGEST_CATCH_UP_SECONDS = 1.0, 60.0
"""After a conflict the watch delivers the newer job and enqueues it. These bound the back-off if no newer version
arrives."""

CONFLICTS_TO_REPORT = 5
"""This many conflicts in a row are logged as a warning."""


class Reconciler:
    """Between two reconciliations it keeps only the number of conflicts in a row and when numbers of pods are due.
    Everything else is in the caches."""

    def __init__(
        self,
        *,
        kinds: Mapping[str, Kind],
        settings: Settings,
        caches: Caches,
        applier: Applier,
        clock: Callable[[], datetime],
        frameworks: Mapping[str, Framework] = FRAMEWORKS,
        pacer: StatusWritePacer | None = None,
    ) -> None:
        self._kinds = kinds
        self._frameworks = frameworks
        self._settings = settings
        self._caches = caches
        self._applier = applier
        self._clock = clock
        self._conflicts: dict[ObjectKey, int] = {}
        self._pacer = pacer or StatusWritePacer()

    async def reconcile(self, key: ObjectKey) -> Outcome:
        """Errors of the API server and invalid jobs are outcomes. Any exception is a defect of the operator."""
        kind = self._kinds[key.kind]
        if failure := await self._confirm_status_write(kind, key):
            return failure
        job = self._caches.jobs[key.kind].store.get(key.namespaced_name)
        if job is None:
            self._applier.forget(key)
            self._conflicts.pop(key, None)
            self._pacer.forget(key)
            return Done()
        if job["metadata"].get("deletionTimestamp"):
            return Done()  # the garbage collector deletes its children
        if self._applier.status_writer.has_outdated_annotation(kind, job):
            return await self._move_annotation_to_status(kind, key, job)
        try:
            return await self._plan_and_apply(kind, key, job, self._read(job, kind))
        except InvalidChild as error:
            return await self._fail(kind, key, job, str(error))

    async def _plan_and_apply(self, kind: Kind, key: ObjectKey, job: Object, typed: Job) -> Outcome:
        now = self._clock()
        observed = self._caches.observe(typed.metadata)
        decided = plan(typed, observed, self._settings, now, frameworks=self._frameworks)
        wait = self._pacer.delay(key) if decided.only_counts else 0.0
        if wait:
            due = now + timedelta(seconds=wait)
            decided = replace(decided, status=None, requeue_at=min(due, decided.requeue_at or due))
        if failure := await self._apply(kind, key, job, decided):
            return failure
        if not wait:
            self._pacer.forget(key)
        if decided.status is not None or decided.changes_children:
            return RequeueAfter(0)  # the next step follows from these writes
        if decided.requeue_at is not None:
            return RequeueAfter(max(0.0, (decided.requeue_at - now).total_seconds()))
        return Terminal(typed.problem) if typed.problem else Done()

    async def _fail(self, kind: Kind, key: ObjectKey, job: Object, problem: str) -> Outcome:
        """Fails the job because the API server never accepts one of its children."""
        present = self._caches.jobs[kind.name].store.get(key.namespaced_name)
        if present is None or present["metadata"].get("generation") != job["metadata"].get("generation"):
            return RequeueAfter(0)  # the error was about an earlier spec or an earlier job
        return await self._plan_and_apply(kind, key, present, replace(self._read(present, kind), problem=problem))

    async def _confirm_status_write(self, kind: Kind, key: ObjectKey) -> Outcome | None:
        """None if the result of the last status write is known."""
        try:
            await self._applier.status_writer.confirm(kind, key)
        except (ApiError, Unreachable) as error:
            return Retry.after(error, f"failed to read back the status: {error}")
        return None

    async def _move_annotation_to_status(self, kind: Kind, key: ObjectKey, job: Object) -> Outcome:
        try:
            await self._applier.status_writer.move_annotation_to_status(kind, job)
        except Conflict:
            return self._after_conflict(key)
        except NotFound:
            return Done()
        except (ApiError, Unreachable) as error:
            return Retry.after(error, f"failed to move the annotation to the status: {error}")
        return RequeueAfter(0)

    def _read(self, job: Object, kind: Kind) -> Job:
        try:
            return read_job(job, self._kinds)
        except InvalidJob as error:
            return salvage_job(job, kind, error)

    async def _apply(self, kind: Kind, key: ObjectKey, job: Object, decided: Plan) -> Outcome | None:
        """None if every write succeeded."""
        try:
            failures = await self._applier.apply(kind, job, decided)
        except Conflict:
            return self._after_conflict(key)
        except NotFound:
            return Done()  # the job has just been deleted
        except (ApiError, Unreachable) as error:
            return Retry.after(error, f"failed to write the status: {error}")
        self._conflicts.pop(key, None)
        return max(failures, key=lambda failure: failure.seconds, default=None)

    def _after_conflict(self, key: ObjectKey) -> Outcome:
        conflicts = self._conflicts[key] = self._conflicts.get(key, 0) + 1
        pause = min(CATCH_UP_SECONDS * 2 ** (conflicts - 1), LONGEST_CATCH_UP_SECONDS)
        if conflicts == CONFLICTS_TO_REPORT:
            log.warning(
                "%s: %d conflicts in a row: another client keeps changing the job, or the watch of %ss is behind; "
                "trying again in %g s",
                key,
                conflicts,
                key.kind,
                pause,
            )
        return RequeueAfter(pause)
