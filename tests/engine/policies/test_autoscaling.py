"""The HorizontalPodAutoscaler of an elastic job."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.engine.planning import DNS, STARTED, created, decide, deleted, events, manifests, standing_events
from tests.support.objects.jobs import JOB_UID, JobBuilder, stored
from trainwright.engine.plan import PODS_WAVE
from trainwright.objects import Object
from trainwright.objects.resources import AUTOSCALERS

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
KIND = "HorizontalPodAutoscaler"
OTHER = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "other", "uid": "other-uid", "controller": True}


def job(*metrics: Object, **policy: Any) -> JobBuilder:
    elastic = {"minReplicas": 1, "maxReplicas": 3, "metrics": list(metrics), **policy}
    return JobBuilder().workers(2).spec(elasticPolicy=elastic).status(STARTED)


def autoscaler(**spec: Any) -> Object:
    (made,) = (one for one in manifests(decide(job(CPU))) if one["kind"] == KIND)
    return stored({**made, "spec": {**made["spec"], **spec}}, "hpa-uid")


def test_it_scales_the_job_between_the_elastic_bounds() -> None:
    (made,) = (one for one in manifests(decide(job(CPU))) if one["kind"] == KIND)
    assert made["apiVersion"] == "autoscaling/v2"
    assert made["metadata"]["name"] == "digits"
    assert made["metadata"]["ownerReferences"][0]["uid"] == JOB_UID
    assert made["spec"] == {
        "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "digits"},
        "minReplicas": 1,
        "maxReplicas": 3,
        "metrics": [CPU],
    }


def test_without_metrics_there_is_none() -> None:
    assert created(decide(JobBuilder().workers(2).spec(elasticPolicy={"minReplicas": 1})), KIND) == []
    assert created(decide(JobBuilder().workers(2)), KIND) == []


def test_an_empty_list_of_metrics_leaves_the_choice_to_the_server() -> None:
    (made,) = (one for one in manifests(decide(job())) if one["kind"] == KIND)
    assert "metrics" not in made["spec"]


def test_without_bounds_it_keeps_the_number_of_workers_but_never_none() -> None:
    """The server takes no autoscaler that ends at 0, and a job that is scaled to no workers must not fail for it."""
    for workers, bound in ((3, 3), (0, 1)):
        (made,) = (
            one
            for one in manifests(decide(JobBuilder().workers(workers).spec(elasticPolicy={"metrics": [CPU]})))
            if one["kind"] == KIND
        )
        assert (made["spec"]["minReplicas"], made["spec"]["maxReplicas"]) == (bound, bound)


def test_it_is_left_alone_while_it_says_what_the_job_says() -> None:
    present = autoscaler(behavior={"filled": "in by the server"})
    made = decide(job(CPU), extras=[present])
    assert (made.patches, created(made, KIND), deleted(made, "horizontalpodautoscalers")) == ((), [], [])


def test_it_follows_the_job() -> None:
    made = decide(job(CPU, maxReplicas=8), extras=[autoscaler()])
    (patch,) = made.patches
    assert (patch.resource, patch.name, patch.uid) == (AUTOSCALERS, "digits", "hpa-uid")
    assert patch.body["spec"]["maxReplicas"] == 8


def test_it_goes_with_the_metrics_at_suspension_and_at_the_end() -> None:
    done = {**STARTED, "conditions": [*STARTED["conditions"], {"type": "Failed", "status": "True"}]}
    for builder in (JobBuilder().workers(2).status(STARTED), job(CPU).suspend(), job(CPU).status(done)):
        made = decide(builder, extras=[autoscaler()])
        assert deleted(made, "horizontalpodautoscalers") == ["digits"]


def test_one_that_goes_is_not_told_again_and_its_successor_waits() -> None:
    going = autoscaler()
    going["metadata"]["deletionTimestamp"] = "2026-11-15T04:00:00Z"
    assert deleted(decide(job(CPU).suspend(), extras=[going]), "horizontalpodautoscalers") == []
    made = decide(job(CPU), extras=[going])
    assert created(made, KIND) == []
    assert made.requeue_at is not None


@pytest.mark.parametrize("owners", [[], [OTHER]], ids=["nobody's", "another job's"])
def test_somebody_elses_is_never_touched(owners: list[Object]) -> None:
    foreign = autoscaler(maxReplicas=7)
    foreign["metadata"]["ownerReferences"] = owners
    made = decide(job(CPU), extras=[foreign])
    assert (made.patches, created(made, KIND)) == ((), [])
    ((reason, message),) = standing_events(made)
    assert reason == "ErrResourceExists"
    assert message.startswith('Resource "digits" of Kind "HorizontalPodAutoscaler" already exists')
    assert deleted(decide(job(CPU).suspend(), extras=[foreign]), "horizontalpodautoscalers") == []


def test_where_there_are_no_autoscalers_the_job_says_so_once() -> None:
    without = replace(DNS, autoscaling=False)
    told = "spec.elasticPolicy.metrics: no HorizontalPodAutoscaler is created here; use kubectl scale"
    made = decide(job(CPU).status({}), settings=without)
    assert events(made) == [("Warning", "FieldWithoutEffect", told)]
    assert created(made, KIND) == []
    assert events(decide(job(CPU), settings=without)) == []


def test_nothing_is_said_where_there_are_autoscalers_or_none_is_asked_for() -> None:
    assert events(decide(job(CPU).status({}))) == []
    assert events(decide(JobBuilder().workers(2), settings=replace(DNS, autoscaling=False))) == []


def test_pods_do_not_wait_for_it() -> None:
    (create,) = (one for one in decide(job(CPU)).creates if one.resource == AUTOSCALERS)
    assert (create.wave, create.needed, create.with_event) == (PODS_WAVE, False, False)
