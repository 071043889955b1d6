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


def test_autoscaler_has_the_elastic_bounds() -> None:
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


def test_job_without_metrics_has_no_autoscaler() -> None:
    assert created(decide(JobBuilder().workers(2).spec(elasticPolicy={"minReplicas": 1})), KIND) == []
    assert created(decide(JobBuilder().workers(2)), KIND) == []


def test_empty_list_of_metrics_uses_the_defaults_of_the_api_server() -> None:
    (made,) = (one for one in manifests(decide(job())) if one["kind"] == KIND)
    assert "metrics" not in made["spec"]


def test_autoscaler_without_bounds_has_the_number_of_workers_but_at_least_1() -> None:
    """The API server rejects an autoscaler with maxReplicas 0, and a job with 0 workers must not fail because of it."""
    for workers, bound in ((3, 3), (0, 1)):
        (made,) = (
            one
            for one in manifests(decide(JobBuilder().workers(workers).spec(elasticPolicy={"metrics": [CPU]})))
            if one["kind"] == KIND
        )
        assert (made["spec"]["minReplicas"], made["spec"]["maxReplicas"]) == (bound, bound)


def test_current_autoscaler_is_not_changed() -> None:
    present = autoscaler(behavior={"filled": "in by the server"})
    made = decide(job(CPU), extras=[present])
    assert (made.patches, created(made, KIND), deleted(made, "horizontalpodautoscalers")) == ((), [], [])


def test_autoscaler_is_patched_when_the_job_changes() -> None:
    made = decide(job(CPU, maxReplicas=8), extras=[autoscaler()])
    (patch,) = made.patches
    assert (patch.resource, patch.name, patch.uid) == (AUTOSCALERS, "digits", "hpa-uid")
    assert patch.body["spec"]["maxReplicas"] == 8


def test_autoscaler_is_deleted_without_metrics_on_suspend_and_on_finish() -> None:
    done = {**STARTED, "conditions": [*STARTED["conditions"], {"type": "Failed", "status": "True"}]}
    for builder in (JobBuilder().workers(2).status(STARTED), job(CPU).suspend(), job(CPU).status(done)):
        made = decide(builder, extras=[autoscaler()])
        assert deleted(made, "horizontalpodautoscalers") == ["digits"]


def test_terminating_autoscaler_is_not_deleted_again_and_its_successor_waits() -> None:
    terminating = autoscaler()
    terminating["metadata"]["deletionTimestamp"] = "2026-11-15T04:00:00Z"
    assert deleted(decide(job(CPU).suspend(), extras=[terminating]), "horizontalpodautoscalers") == []
    made = decide(job(CPU), extras=[terminating])
    assert created(made, KIND) == []
    assert made.requeue_at is not None


@pytest.mark.parametrize("owners", [[], [OTHER]], ids=["without owner", "of another job"])
def test_foreign_autoscaler_is_never_changed(owners: list[Object]) -> None:
    foreign = autoscaler(maxReplicas=7)
    foreign["metadata"]["ownerReferences"] = owners
    made = decide(job(CPU), extras=[foreign])
    assert (made.patches, created(made, KIND)) == ((), [])
    ((reason, message),) = standing_events(made)
    assert reason == "ErrResourceExists"
    assert message.startswith('Resource "digits" of Kind "HorizontalPodAutoscaler" already exists')
    assert deleted(decide(job(CPU).suspend(), extras=[foreign]), "horizontalpodautoscalers") == []


def test_missing_autoscaling_is_reported_once() -> None:
    without = replace(DNS, autoscaling=False)
    message = "spec.elasticPolicy.metrics: no HorizontalPodAutoscaler is created here; use kubectl scale"
    made = decide(job(CPU).status({}), settings=without)
    assert events(made) == [("Warning", "FieldWithoutEffect", message)]
    assert created(made, KIND) == []
    assert events(decide(job(CPU), settings=without)) == []


def test_nothing_is_reported_if_autoscaling_is_available_or_not_used() -> None:
    assert events(decide(job(CPU).status({}))) == []
    assert events(decide(JobBuilder().workers(2), settings=replace(DNS, autoscaling=False))) == []


def test_pods_do_not_wait_for_the_autoscaler() -> None:
    (create,) = (one for one in decide(job(CPU)).creates if one.resource == AUTOSCALERS)
    assert (create.wave, create.needed, create.with_event) == (PODS_WAVE, False, False)
