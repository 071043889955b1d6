"""Which Jobs a CronJob starts and deletes."""

from datetime import UTC, datetime, timedelta
from typing import Any

from trainwright.cluster.controllers.workloads.plans.cronjob_plan import plan_cron_job
from trainwright.objects import Object
from trainwright.objects.times import format_time

NOW = datetime(2026, 3, 4, 12, 30, 40, tzinfo=UTC)


def cron_job(*, status: Object | None = None, created: datetime = NOW - timedelta(minutes=10), **spec: Any) -> Object:
    template = {"spec": {"template": {"spec": {"containers": [], "restartPolicy": "Never"}}}}
    defaults = {"schedule": "*/5 * * * *", "concurrencyPolicy": "Allow", "suspend": False, "jobTemplate": template}
    limits = {"successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1}
    metadata = {"name": "c", "namespace": "ns", "uid": "u", "creationTimestamp": format_time(created)}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata,
        "spec": defaults | limits | spec,
        "status": status or {},
    }


def job(name: str, result: str = "", started: str = "") -> Object:
    status: Object = {"startTime": started}
    if result:
        status |= {"conditions": [{"type": result, "status": "True"}], "completionTime": "2026-03-04T12:00:00Z"}
    metadata = {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"}
    return {"metadata": metadata, "status": status}


def active(*names: str) -> Object:
    return {"active": [{"name": name, "uid": name} for name in names]}


def test_job_that_is_due_is_started_once() -> None:
    plan = plan_cron_job(cron_job(), [], NOW)

    assert plan.create is not None
    assert plan.create["metadata"]["name"] == f"c-{int(datetime(2026, 3, 4, 12, 30, tzinfo=UTC).timestamp()) // 60}"
    assert plan.status["lastScheduleTime"] == "2026-03-04T12:30:00Z"
    annotations = plan.create["metadata"]["annotations"]
    assert annotations == {"batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-03-04T12:30:00Z"}
    again = plan_cron_job(cron_job(status=plan.status), [], NOW)
    assert again.create is None
    assert again.requeue_after == 260


def test_nothing_is_started_before_its_time_or_while_suspended() -> None:
    assert plan_cron_job(cron_job(created=NOW), [], NOW).create is None
    suspended = plan_cron_job(cron_job(suspend=True), [], NOW)
    assert (suspended.create, suspended.requeue_after) == (None, None)


def test_missed_deadline_starts_nothing() -> None:
    assert plan_cron_job(cron_job(startingDeadlineSeconds=30), [], NOW).create is None
    assert plan_cron_job(cron_job(startingDeadlineSeconds=60), [], NOW).create is not None


def test_of_many_missed_times_the_last_one_counts() -> None:
    plan = plan_cron_job(cron_job(created=NOW - timedelta(days=100)), [], NOW)

    assert plan.status["lastScheduleTime"] == "2026-03-04T12:30:00Z"


def test_concurrency_policies() -> None:
    running = [job("old")]
    allowed = plan_cron_job(cron_job(status=active("old")), running, NOW)
    assert allowed.create is not None
    assert not allowed.delete

    forbidden = plan_cron_job(cron_job(status=active("old"), concurrencyPolicy="Forbid"), running, NOW)
    assert forbidden.create is None
    assert [reason for _, reason, _ in forbidden.events] == ["JobAlreadyActive"]

    replaced = plan_cron_job(cron_job(status=active("old"), concurrencyPolicy="Replace"), running, NOW)
    assert replaced.create is not None
    assert replaced.delete == running


def test_finished_jobs_beyond_the_limits_are_deleted() -> None:
    succeeded = [job(f"s{number}", "Complete", f"2026-03-04T0{number}:00:00Z") for number in range(5)]
    failed = [job(f"f{number}", "Failed", f"2026-03-04T0{number}:00:00Z") for number in range(3)]

    plan = plan_cron_job(cron_job(suspend=True, status=active("s4")), [*succeeded, *failed], NOW)

    assert {one["metadata"]["name"] for one in plan.delete} == {"s0", "s1", "f0", "f1"}
    assert plan.events == [("Normal", "SawCompletedJob", "Saw completed job: s4, condition: Complete")]
    assert plan.status == {"lastSuccessfulTime": "2026-03-04T12:00:00Z"}


def test_job_that_a_user_made_of_the_template_does_not_count() -> None:
    plan = plan_cron_job(cron_job(concurrencyPolicy="Forbid"), [job("manual")], NOW)

    assert plan.create is not None


def test_times_beyond_the_calendar_start_nothing() -> None:
    late = cron_job(status={"lastScheduleTime": "9999-12-31T23:59:00Z"})
    assert plan_cron_job(late, [], NOW).create is None
    long_ago = cron_job(startingDeadlineSeconds=2**62)
    assert plan_cron_job(long_ago, [], NOW).create is not None
