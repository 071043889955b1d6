"""Decides about one CronJob: the Job that is due, finished Jobs to delete, and its status."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from trainwright.objects import Object, copied
from trainwright.objects.conditions import is_condition_true
from trainwright.objects.cron import Schedule, parse_schedule
from trainwright.objects.metadata import controller_reference
from trainwright.objects.resources import BATCH_JOBS
from trainwright.objects.times import format_time, parse_time

SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
_MOST_MISSED = 100
_LONGEST_DEADLINE = 10 * 366 * 24 * 3600
Event = tuple[str, str, str]


@dataclass(slots=True)
class CronJobPlan:
    create: Object | None = None
    delete: list[Object] = field(default_factory=list)
    status: Object = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    requeue_after: float | None = None


def plan_cron_job(cron_job: Object, jobs: Sequence[Object], now: datetime) -> CronJobPlan:
    """`jobs` are those that the CronJob controls."""
    spec, metadata = cron_job["spec"], cron_job["metadata"]
    plan = CronJobPlan(status=copied(cron_job.get("status") or {}))
    started = {one["uid"] for one in plan.status.get("active") or ()}  # a user may have made others of its template
    active = [job for job in jobs if not _result(job) and job["metadata"]["uid"] in started]
    _record_finished(plan, jobs)
    plan.delete = _beyond_history(spec, jobs)
    if "deletionTimestamp" in metadata or spec.get("suspend"):
        _set_active(plan, active)
        return plan
    due, upcoming = _times(cron_job, now)
    if upcoming is not None:
        plan.requeue_after = max(0.0, (upcoming - now).total_seconds())
    if due is not None and not _is_done(plan, due):
        active = _start(plan, cron_job, active, due, now)
    _set_active(plan, active)
    return plan


def _start(plan: CronJobPlan, cron_job: Object, active: list[Object], due: datetime, now: datetime) -> list[Object]:
    spec = cron_job["spec"]
    deadline = _deadline(spec)
    if deadline is not None and due + deadline < now:
        plan.events.append(
            ("Warning", "MissSchedule", f"Missed scheduled time to start a job: {due:%a, %d %b %Y %H:%M:%S +0000}")
        )
        return active
    if active and spec["concurrencyPolicy"] == "Forbid":
        why = "Not starting job because prior execution is running and concurrency policy is Forbid"
        plan.events.append(("Normal", "JobAlreadyActive", why))
        return active
    if spec["concurrencyPolicy"] == "Replace":
        plan.delete += active
        active = []
    plan.create = rendered_job(cron_job, due)
    plan.status["lastScheduleTime"] = format_time(due.astimezone(UTC))
    return active


def _deadline(spec: Object) -> timedelta | None:
    seconds = spec.get("startingDeadlineSeconds")
    return None if seconds is None else timedelta(seconds=min(seconds, _LONGEST_DEADLINE))


def _times(cron_job: Object, now: datetime) -> tuple[datetime | None, datetime | None]:
    """The last time at which a Job was due and has not been considered, and the next one."""
    spec = cron_job["spec"]
    zone = ZoneInfo(spec["timeZone"]) if spec.get("timeZone") else UTC
    schedule = parse_schedule(spec["schedule"])
    last = (cron_job.get("status") or {}).get("lastScheduleTime") or cron_job["metadata"]["creationTimestamp"]
    since = parse_time(last)
    if (deadline := _deadline(spec)) is not None:
        since = max(since, now - deadline)
    due, upcoming = None, schedule.next_after(since.astimezone(zone))
    for _ in range(_MOST_MISSED):
        if upcoming is None or upcoming > now:
            return due, upcoming
        due, upcoming = upcoming, schedule.next_after(upcoming)
    # Many were missed: only the last one counts.
    return _last_before(schedule, now.astimezone(zone)), schedule.next_after(now.astimezone(zone))


def _last_before(schedule: Schedule, now: datetime) -> datetime | None:
    for span in (timedelta(hours=1), timedelta(days=1), timedelta(days=32), timedelta(days=367)):
        found, candidate = None, schedule.next_after(now - span)
        while candidate is not None and candidate <= now:
            found, candidate = candidate, schedule.next_after(candidate)
        if found is not None:
            return found
    return None


def _is_done(plan: CronJobPlan, due: datetime) -> bool:
    last = plan.status.get("lastScheduleTime")
    return last is not None and parse_time(last) >= due


def rendered_job(cron_job: Object, due: datetime) -> Object:
    metadata, template = cron_job["metadata"], cron_job["spec"]["jobTemplate"]
    own = template.get("metadata") or {}
    moment = due.isoformat(timespec="seconds").replace("+00:00", "Z")
    return {
        "apiVersion": BATCH_JOBS.api_version,
        "kind": BATCH_JOBS.kind,
        "metadata": {
            "name": f"{metadata['name']}-{int(due.timestamp()) // 60}",
            "namespace": metadata["namespace"],
            "labels": dict(own.get("labels") or {}),
            "annotations": {**(own.get("annotations") or {}), SCHEDULED: moment},
            "ownerReferences": [controller_reference(cron_job)],
        },
        "spec": copied(template["spec"]),
    }


def _result(job: Object) -> str:
    status = job.get("status") or {}
    return next((one for one in ("Complete", "Failed") if is_condition_true(status, one)), "")


def _record_finished(plan: CronJobPlan, jobs: Sequence[Object]) -> None:
    known = {one["uid"] for one in plan.status.get("active") or ()}
    for job in jobs:
        result = _result(job)
        if result and job["metadata"]["uid"] in known:
            message = f"Saw completed job: {job['metadata']['name']}, condition: {result}"
            plan.events.append(("Normal", "SawCompletedJob", message))
        ended = (job.get("status") or {}).get("completionTime")
        if result == "Complete" and ended and ended > plan.status.get("lastSuccessfulTime", ""):
            plan.status["lastSuccessfulTime"] = ended


def _set_active(plan: CronJobPlan, active: Sequence[Object]) -> None:
    plan.status.pop("active", None)
    if active:
        plan.status["active"] = [reference_to(job) for job in active]


def reference_to(job: Object) -> Object:
    metadata = job["metadata"]
    return {
        "kind": BATCH_JOBS.kind,
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "apiVersion": BATCH_JOBS.api_version,
        "resourceVersion": metadata["resourceVersion"],
    }


def _beyond_history(spec: Object, jobs: Sequence[Object]) -> list[Object]:
    """The oldest finished Jobs beyond the limits."""
    doomed: list[Object] = []
    for result, limit in (("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")):
        finished = sorted(
            (job for job in jobs if _result(job) == result and "deletionTimestamp" not in job["metadata"]),
            key=lambda job: ((job.get("status") or {}).get("startTime", ""), job["metadata"]["name"]),
        )
        if (most := spec.get(limit)) is not None:
            doomed += finished[: max(0, len(finished) - most)]
    return doomed
