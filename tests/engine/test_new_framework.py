"""A framework that nobody has heard of, added by one row and one small class: the rest of the engine is common."""

import pytest

from tests.support.objects.jobs import NOW, JobBuilder, PodBuilder
from tests.support.objects.orchestra import ORCHESTRA, Orchestra
from trainwright.api.crd import render_crd
from trainwright.api.errors import InvalidJob
from trainwright.api.job import read_job
from trainwright.engine import EMBEDDED, Observed, Plan, Settings, plan
from trainwright.engine.framework import Framework


def job(violins: int = 2) -> JobBuilder:
    return JobBuilder("ninth", kind=ORCHESTRA).replica("Conductor").replica("Violin", violins)


def decide(builder: JobBuilder, *pods: PodBuilder, settings: Settings | None = None) -> Plan:
    observed = Observed(tuple(pod.pod() for pod in pods))
    frameworks = {"orchestra": Orchestra()}
    return plan(builder.job(), observed, settings or Settings(), NOW, frameworks=frameworks)


def seat(role: str, index: int = 0) -> PodBuilder:
    return PodBuilder(role, index, job="ninth", kind=ORCHESTRA)


def test_its_pods_and_services_are_planned() -> None:
    made = decide(job())
    assert [(obj["kind"], obj["metadata"]["name"]) for obj in made.creates] == [
        ("Pod", "ninth-conductor-0"),
        ("Service", "ninth-conductor-0"),
        ("Pod", "ninth-violin-0"),
        ("Pod", "ninth-violin-1"),
        ("Service", "ninth-violin-0"),
        ("Service", "ninth-violin-1"),
    ]
    violin = made.creates[3]
    assert violin["spec"]["containers"][0]["env"] == [
        {"name": "BATON", "value": "ninth-conductor-0:4711"},
        {"name": "SEAT", "value": "1"},
    ]
    assert violin["metadata"]["labels"]["training.kubeflow.org/operator-name"] == "orchestrajob-controller"
    assert "initContainers" not in violin["spec"]
    assert made.creates[1]["spec"]["ports"] == [{"name": "baton", "port": 4711}]


def test_its_first_role_decides() -> None:
    started = decide(job()).status
    made = decide(job().status(started), seat("Conductor").succeeded(), seat("Violin").running())
    assert made.status is not None
    assert made.status["conditions"][-1]["reason"] == "OrchestraJobSucceeded"
    assert made.status["replicaStatuses"]["Violin"] == {"succeeded": 1}


def test_its_restart_policy_applies() -> None:
    started = decide(job()).status
    made = decide(job().status(started), seat("Conductor").running(), seat("Violin").failed(1))
    assert made.status is not None
    assert (
        made.status["conditions"][-1]["message"] == "OrchestraJob ninth is failed because 1 Violin replica(s) failed."
    )


def test_it_gets_a_port_of_its_own_on_one_machine() -> None:
    made = decide(job(), settings=EMBEDDED)
    assert made.status is not None
    assert made.status["ports"] == {"Conductor": 4711}


def test_its_manifests_are_checked_and_its_crd_is_rendered() -> None:
    raw = job().raw()
    raw["spec"]["orchestraReplicaSpecs"]["Drum"] = raw["spec"]["orchestraReplicaSpecs"]["Violin"]
    with pytest.raises(InvalidJob) as refused:
        read_job(raw, {"OrchestraJob": ORCHESTRA})
    assert str(refused.value) == (
        'spec.orchestraReplicaSpecs[Drum]: Unsupported value: "Drum": supported values: "Conductor", "Violin"'
    )
    crd = render_crd(ORCHESTRA)
    assert crd["metadata"]["name"] == "orchestrajobs.kubeflow.org"
    assert ORCHESTRA.resource.path("team", "ninth") == "/apis/kubeflow.org/v1/namespaces/team/orchestrajobs/ninth"


def test_a_framework_that_says_nothing_gets_plain_pods() -> None:
    observed = Observed()
    made = plan(job().job(), observed, EMBEDDED, NOW, frameworks={"orchestra": Framework()})
    assert "env" not in made.creates[0]["spec"]["containers"][0]
    assert made.status is not None
    assert "ports" not in made.status
