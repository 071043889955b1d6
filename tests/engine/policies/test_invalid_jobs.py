"""An invalid job fails at once, with the field and the reason, and is cleaned up like any other."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given

from tests.support.engine.planning import DNS, STARTED, all_services, conditions, deleted, events
from tests.support.objects.jobs import NOW, JobBuilder, PodBuilder, at
from tests.support.objects.junk import jobs, junk, statuses
from trainwright.api.errors import InvalidJob
from trainwright.api.job import read_job, salvage_job
from trainwright.api.kinds import PYTORCH, Kind
from trainwright.engine import Observed, Plan, ServiceView, plan
from trainwright.engine.conditions import is_finished
from trainwright.objects import Object

MESSAGE = (
    "PyTorchJob failed validation because spec.runPolicy.backoffLimit: "
    'Invalid value: "many": must be an integer, not a string'
)


def refused(raw: Object, *pods: PodBuilder, services: Iterable[ServiceView] = (), now: datetime = NOW) -> Plan:
    with pytest.raises(InvalidJob) as invalid:
        read_job(raw)
    observed = Observed(tuple(pod.pod() for pod in pods), tuple(services))
    return plan(salvage_job(raw, PYTORCH, invalid.value), observed, DNS, now)


def broken() -> JobBuilder:
    return JobBuilder().master().run_policy(backoffLimit="many")


def test_invalid_job_fails_with_the_field_and_the_reason() -> None:
    made = refused(broken().raw())
    assert conditions(made) == [
        ("Created", "True", "PyTorchJobCreated", "PyTorchJob digits is created."),
        ("Failed", "True", "PyTorchJobFailedValidation", MESSAGE),
    ]
    assert events(made) == [("Warning", "PyTorchJobFailedValidation", MESSAGE)]
    assert made.status is not None
    assert made.status["completionTime"] == "2026-11-15T04:00:00Z"


def test_failed_validation_is_recorded_once() -> None:
    made = refused(broken().raw())
    assert refused(broken().status(made.status).raw()).empty


def test_terminating_and_foreign_jobs_are_not_validated() -> None:
    assert refused(broken().metadata(deletionTimestamp="2026-11-15T04:00:00Z").raw()).empty
    assert refused(broken().run_policy(managedBy="kueue.x-k8s.io/multikueue").raw()).empty


def test_unreadable_status_is_replaced() -> None:
    made = refused({**JobBuilder().master().raw(), "status": {"conditions": "none"}})
    assert [kind for kind, *_ in conditions(made)] == ["Created", "Failed"]


@pytest.mark.parametrize(
    ("policy", "gone"),
    [("None", []), ("Running", ["digits-master-0"]), ("All", ["digits-master-0", "digits-worker-0"])],
)
def test_running_job_that_becomes_invalid_is_cleaned_up_by_its_policy(policy: str, gone: list[str]) -> None:
    pods = (PodBuilder("Master").running(), PodBuilder("Worker", 0).succeeded())
    edited = broken().run_policy(cleanPodPolicy=policy).status(STARTED)
    made = refused(edited.raw(), *pods, services=all_services(1))
    assert conditions(made)[-1] == ("Failed", "True", "PyTorchJobFailedValidation", MESSAGE)
    assert deleted(made) == deleted(made, "services") == gone
    assert made.creates == ()


def test_invalid_job_is_deleted_after_its_ttl() -> None:
    made = refused(broken().run_policy(ttlSecondsAfterFinished=60).raw())
    assert (made.delete_job, made.requeue_at) == (False, at(60))
    again = broken().run_policy(ttlSecondsAfterFinished=60).status(made.status).raw()
    assert refused(again, now=at(60)).delete_job


def test_succeeded_job_that_becomes_invalid_stays_succeeded() -> None:
    verdict = {"type": "Succeeded", "status": "True", "lastTransitionTime": "2026-11-15T04:00:00Z"}
    status = {**STARTED, "conditions": [*STARTED["conditions"], verdict], "completionTime": "2026-11-15T04:00:00Z"}
    made = refused(broken().run_policy(ttlSecondsAfterFinished=60).status(status).raw())
    assert made.empty
    assert made.requeue_at == at(60)


@given(jobs, statuses | junk)
def test_any_malformed_job_can_be_planned(drawn: tuple[Kind, Any], status: Any) -> None:
    kind, spec = drawn
    raw = {**JobBuilder(kind=kind).raw(), "spec": spec, "status": status}
    pods = (PodBuilder("Master", kind=kind).running().pod(), PodBuilder("Worker", 0, kind=kind).failed(1).pod())
    try:
        job = read_job(raw)
    except InvalidJob as refusal:
        job = salvage_job(raw, kind, refusal)
    made = plan(job, Observed(pods), DNS, NOW)
    assert not job.problem or not made.creates
    assert not job.problem or job.managed_elsewhere or is_finished(made.status or job.raw["status"])
