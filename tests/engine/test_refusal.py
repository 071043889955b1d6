"""A job that cannot be run fails at once and says which field is wrong."""

import pytest

from tests.support.jobs import NOW, JobBuilder
from tests.support.planning import conditions, events
from trainwright.api.errors import InvalidJob
from trainwright.api.job import read_job
from trainwright.api.kinds import PYTORCH
from trainwright.engine import Plan, refuse
from trainwright.objects import Object

MESSAGE = (
    'PyTorchJob failed validation because spec.runPolicy.backoffLimit: Invalid value: "many": must be int, not str'
)


def refused(raw: Object) -> Plan:
    with pytest.raises(InvalidJob) as invalid:
        read_job(raw)
    return refuse(raw, PYTORCH, invalid.value, NOW)


def broken() -> JobBuilder:
    return JobBuilder().master().run_policy(backoffLimit="many")


def test_it_fails_with_the_field_and_the_reason() -> None:
    made = refused(broken().raw())
    assert conditions(made) == [
        ("Created", "True", "PyTorchJobCreated", "PyTorchJob digits is created."),
        ("Failed", "True", "PyTorchJobFailedValidation", MESSAGE),
    ]
    assert events(made) == [("Warning", "PyTorchJobFailedValidation", MESSAGE)]
    assert made.status is not None
    assert made.status["completionTime"] == "2026-11-15T04:00:00Z"


def test_it_is_told_once() -> None:
    made = refused(broken().raw())
    assert refused(broken().status(made.status).raw()).empty


def test_jobs_that_go_or_are_not_ours_are_not_judged() -> None:
    assert refused(broken().metadata(deletionTimestamp="2026-11-15T04:00:00Z").raw()).empty
    assert refused(broken().run_policy(managedBy="kueue.x-k8s.io/multikueue").raw()).empty


def test_a_status_that_cannot_be_read_is_written_anew() -> None:
    made = refused({**JobBuilder().master().raw(), "status": {"conditions": "none"}})
    assert [kind for kind, *_ in conditions(made)] == ["Created", "Failed"]
