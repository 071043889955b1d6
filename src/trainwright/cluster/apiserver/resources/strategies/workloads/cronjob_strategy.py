"""CronJobs: their defaults and checks."""

from collections.abc import Iterator
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trainwright.cluster.apiserver.resources.resource_type import Strategy
from trainwright.cluster.apiserver.resources.strategies.workloads.workload_strategies import (
    clear_status,
    default_template,
    negative_errors,
)
from trainwright.objects import Object
from trainwright.objects.cron import ScheduleError, parse_schedule
from trainwright.objects.field_errors import FieldError, invalid, not_supported, required

_POLICIES = ("Allow", "Forbid", "Replace")
_RESTARTS = ("OnFailure", "Never")


def _set_defaults(cron_job: Object) -> None:
    spec = cron_job.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    template = spec.setdefault("jobTemplate", {})
    template.setdefault("metadata", {})
    default_template(template.setdefault("spec", {}).setdefault("template", {}))


def _validate(cron_job: Object) -> list[FieldError]:
    return [*_errors(cron_job["spec"])]


def _errors(spec: Object) -> Iterator[FieldError]:
    schedule = spec.get("schedule") or ""
    if not schedule:
        yield required("spec.schedule")
    elif "TZ" in schedule:
        yield invalid("spec.schedule", schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
    else:
        try:
            parse_schedule(schedule)
        except ScheduleError as error:
            yield invalid("spec.schedule", schedule, str(error))
    if (zone := spec.get("timeZone")) is not None:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            yield invalid("spec.timeZone", zone, f"unknown time zone {zone}")
    yield from negative_errors(
        spec, "spec", "startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit"
    )
    if spec["concurrencyPolicy"] not in _POLICIES:
        yield not_supported("spec.concurrencyPolicy", spec["concurrencyPolicy"], _POLICIES)
    policy = spec["jobTemplate"]["spec"]["template"]["spec"].get("restartPolicy")
    if policy not in _RESTARTS:
        path = "spec.jobTemplate.spec.template.spec.restartPolicy"
        supported = ", ".join(f'"{one}"' for one in _RESTARTS)
        detail = f"valid values: {supported}"
        yield (required(path, detail) if not policy or policy == "Always" else not_supported(path, policy, _RESTARTS))


CRON_JOB = Strategy(set_defaults=_set_defaults, prepare_for_create=clear_status, validate=_validate)
