"""The conditions of a TFJob by the states of its pods: upstream's status table."""

import pytest

from tests.support.engine.planning import decide, states
from tests.support.objects.jobs import service, view_service
from tests.support.objects.tfjob_states import NORMAL_PATH, STATUS, WORKER_0, TFJobState
from trainwright.api.kinds.tensorflow import TENSORFLOW
from trainwright.engine import Plan


def plan_of(row: TFJobState) -> Plan:
    pods = list(row.pods("digits"))
    services = [view_service(service(role, index, kind=TENSORFLOW)) for role, index, _ in pods]
    return decide(row.job("digits"), *(pod for _, _, pod in pods), services=services)


@pytest.mark.parametrize("row", [*NORMAL_PATH, *WORKER_0, *STATUS], ids=lambda row: row.about)
def test_condition(row: TFJobState) -> None:
    shown = dict(states(plan_of(row)))
    assert row.condition in shown if row.condition else [*shown] == ["Created"]
    finished = {"Succeeded", "Failed"} & shown.keys()
    assert len(finished) <= 1
    assert not (finished and shown.get("Running") == "True")


@pytest.mark.parametrize("row", NORMAL_PATH, ids=lambda row: row.about)
def test_missing_pods_and_services_are_created(row: TFJobState) -> None:
    planned = plan_of(row)
    missing = {
        f"digits-{role.lower()}-{index}"
        for role, pods in row.roles.items()
        for index, state in enumerate(pods)
        if state == "-"
    }
    for kind in ("Pod", "Service"):
        assert {create.name for create in planned.creates if create.resource.kind == kind} == missing
    assert planned.deletes == ()
