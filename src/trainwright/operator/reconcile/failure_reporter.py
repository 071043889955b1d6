"""Reports why a job failed: an event and `status.failure`, from the ends and the logs of its containers. A job that
keeps restarting gets the event too.

It works beside the reconciliation, which never waits for it: a cause is worth reporting, and not worth a delay of
clean-up.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from trainwright.api.kinds import Kind
from trainwright.api.labels import rank_of
from trainwright.engine import JobEvent
from trainwright.engine.conditions import FAILED
from trainwright.insight.first_failing_rank import Diagnosis
from trainwright.insight.job_diagnosis import diagnose_job, job_failed_at
from trainwright.kube.client.errors import ApiError, Conflict, NotFound, Unreachable
from trainwright.kube.controller.deduplicator import Deduplicator
from trainwright.objects import Object
from trainwright.objects.conditions import is_condition_true
from trainwright.objects.kinds.container_runs import ContainerRun, Line, RunKey, runs_in_status, timed_line
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.times import format_time
from trainwright.operator.reconcile.reconcile_context import ReconcileContext

log = logging.getLogger(__name__)

ReadRuns = Callable[[str], Sequence[ContainerRun]]
"""Reads the runs of the job with this uid from the records of its nodes. It may block."""

REASON = "FailureDiagnosed"
_PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Before another attempt, while the ends of further pods may change the diagnosis."""
_RECENT_SECONDS = 60.0
_MAX_ATTEMPTS = 5
_CONFLICT_SECONDS = 0.2
_CONCURRENT = 4
_TAIL_LINES, _TAIL_BYTES = 500, 256 * 1024
_MAX_MESSAGE = 1000
"""The API server accepts 1024 characters in the message of an event."""


class FailureReporter:
    """`read_runs` is for a cluster whose nodes are on this machine. Otherwise the statuses of pods are used and, with
    `read_logs`, the last lines of the failed ones."""

    def __init__(
        self, context: ReconcileContext, *, read_runs: ReadRuns | None = None, read_logs: bool = False
    ) -> None:
        self._context = context
        self._read_runs = read_runs
        self._read_logs = read_logs
        self._slots = asyncio.Semaphore(_CONCURRENT)
        self._tasks: set[asyncio.Task[None]] = set()
        self._reported = Deduplicator[str, str]()
        """The causes of restarts, by the uid of the job."""

    def job_failed(self, kind: Kind, job: Object) -> None:
        """To be called when the Failed condition has been written, before clean-up deletes pods. Returns at once."""
        self._start(self._report(_Report(kind, job, time.time(), self._pods(job))))

    def job_backs_off(self, kind: Kind, job: Object) -> None:
        """To be called when a rank of a running job begins to wait for another start. Returns at once."""
        self._start(self._report_restarts(_Report(kind, job, None, self._pods(job))))

    def forget(self, uid: str) -> None:
        """Drops what is kept about a job that was deleted."""
        self._reported.forget(uid)

    def resume(self, kind: Kind, job: Object) -> None:
        """To be called for every job at the start: reports one that failed just before, when the process was ended."""
        status = job.get("status") or {}
        recent = time.time() - _RECENT_SECONDS < job_failed_at(job) < math.inf
        if recent and "failure" not in status and is_condition_true(status, FAILED) and not self._prunes(kind):
            self._start(self._report(_Report(kind, job, None, self._pods(job))))

    def _prunes(self, kind: Kind) -> bool:
        return kind.name in self._context.prunes_status

    def _start(self, report: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(report)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Ends the reports in progress."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _pods(self, job: Object) -> dict[str, Pod]:
        metadata = job["metadata"]
        pods = self._context.caches.pods_of(metadata["uid"])
        return {pod.metadata.uid: pod for pod in pods}

    async def _report(self, report: "_Report") -> None:
        try:
            diagnosis = await self._diagnose(report)
            if diagnosis is not None:
                self._context.observer.failure_diagnosed(report.kind, report.job, diagnosis)
                self._context.events.record(report.job, JobEvent("Warning", REASON, event_message(diagnosis)))
                await self._write(report, status_field(diagnosis))
        except (ApiError, Unreachable) as error:
            name = report.job["metadata"]["name"]
            log.info("%s %s: failed to write status.failure: %s", report.kind.name, name, error)
        except Exception:
            log.exception("failed to explain a failed job")  # a defect; the job itself is not affected

    async def _report_restarts(self, report: "_Report") -> None:
        """Only what is known for sure: the job goes on, so there is another occasion."""
        try:
            async with self._slots:
                diagnosis = await self._verdict(report)
        except Exception:
            log.exception("failed to explain the restarts of a job")  # a defect; the job itself is not affected
            return
        if diagnosis is None or diagnosis.rank is None:
            return
        if self._reported.first(report.job["metadata"]["uid"], diagnosis.summary):
            self._context.events.record(report.job, JobEvent("Warning", REASON, event_message(diagnosis)))

    async def _diagnose(self, report: "_Report") -> Diagnosis | None:
        diagnosis = None
        for pause in (0.0, *_PAUSES):
            await asyncio.sleep(pause)
            async with self._slots:
                diagnosis = await self._verdict(report)
            if diagnosis is None or diagnosis.certain:
                break
        return diagnosis

    async def _verdict(self, report: "_Report") -> Diagnosis | None:
        report.pods.update(self._pods(report.job))
        pods = [(rank_of(pod.metadata.labels, pod.name), pod) for pod in report.pods.values()]
        if self._read_runs is not None:
            runs = await asyncio.to_thread(self._read_runs, report.job["metadata"]["uid"])
        else:
            runs = [
                replace(run, lines=await self._last_lines(report, run))
                for rank, pod in pods
                for run in runs_in_status(pod, rank)
            ]
        return diagnose_job(report.job, runs, pods, failed_at=report.failed_at)

    async def _last_lines(self, report: "_Report", run: ContainerRun) -> tuple[Line, ...]:
        """Each log is read once: a failed container writes no more."""
        if not self._read_logs or not run.exit_code:
            return ()
        if run.key not in report.lines:
            report.lines[run.key] = await self._read_log(run)
        return report.lines[run.key]

    async def _read_log(self, run: ContainerRun) -> tuple[Line, ...]:
        lines = self._context.client.logs(
            run.pod,
            namespace=run.namespace,
            container=run.container,
            tail_lines=_TAIL_LINES,
            limit_bytes=_TAIL_BYTES,
            timestamps=True,
            previous=run.previous,
        )
        try:
            return tuple([timed_line(raw) async for raw in lines])
        except (ApiError, Unreachable) as error:
            log.debug("failed to read the log of pod %s: %s", run.pod, error)  # deleted already, or not allowed
            return ()

    async def _write(self, report: "_Report", failure: Object) -> None:
        """Adds the field to the newest status that is known. Not where the CRD prunes it: the event says it too."""
        kind, metadata = report.kind, report.job["metadata"]
        jobs = self._context.caches.jobs[kind.name]
        for attempt in range(_MAX_ATTEMPTS):
            await asyncio.sleep(attempt * _CONFLICT_SECONDS)
            job = jobs.store.get(f"{metadata['namespace']}/{metadata['name']}")
            if job is None or job["metadata"]["uid"] != metadata["uid"] or self._prunes(kind):
                return
            try:
                status = {**(job.get("status") or {}), "failure": failure}
                jobs.remember(
                    await self._context.client.replace(kind.resource, {**job, "status": status}, subresource="status")
                )
            except Conflict:
                continue  # the watch delivers the newer job
            except NotFound:
                return
            return


class _Report:
    """A failed job, its pods as they were last seen, and the logs that were read."""

    def __init__(self, kind: Kind, job: Object, failed_at: float | None, pods: dict[str, Pod]) -> None:
        self.kind = kind
        self.job = job
        self.failed_at = failed_at
        self.pods = pods
        self.lines: dict[RunKey, tuple[Line, ...]] = {}


def event_message(diagnosis: Diagnosis) -> str:
    """`worker-1 failed first: ValueError: boom; master-0 and worker-0 followed`"""
    text = diagnosis.headline
    if diagnosis.alike:
        text += f" (also {', '.join(diagnosis.alike)})"
    if diagnosis.advice:
        text += f": {diagnosis.advice}"
    return text if len(text) <= _MAX_MESSAGE else text[: _MAX_MESSAGE - 1] + "…"


def status_field(diagnosis: Diagnosis) -> Object:
    """The value of `status.failure`, without empty fields."""
    ended = diagnosis.finished_at
    fields = {
        "rank": diagnosis.rank,
        "process": diagnosis.process,
        "pod": diagnosis.pod if diagnosis.rank else None,
        "container": diagnosis.container if diagnosis.rank else None,
        "exitCode": diagnosis.exit_code if diagnosis.rank else None,
        "reason": diagnosis.reason,
        "cause": diagnosis.summary,
        "advice": diagnosis.advice,
        "finishedAt": format_time(datetime.fromtimestamp(ended, UTC)) if ended is not None and diagnosis.rank else None,
        "followers": list(diagnosis.followers),
    }
    return {name: value for name, value in fields.items() if value not in (None, "", [])}
