"""The numbers for Prometheus: what each event changes, and that the documented names are those that are there."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.engine.conditions import RESTARTING, RUNNING, SUSPENDED, set_condition
from trainwright.engine.plan import Transition
from trainwright.kube.client.request_metrics import RequestSeen
from trainwright.kube.client.requests import Request
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import Done, Outcome, RequeueAfter, Retry, Terminal
from trainwright.objects import Object
from trainwright.operator.serving.http_server import Call
from trainwright.operator.serving.metrics import Metrics

ROOT = Path(__file__).parents[3]
NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
JOB: Object = {
    "kind": "PyTorchJob",
    "metadata": {"namespace": "here", "name": "job", "uid": "u1", "creationTimestamp": "2026-11-15T11:59:57Z"},
}
LABELS = {"job_namespace": "here", "framework": "pytorch"}
CONTROLLER = {"controller": "pytorchjob-controller"}


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(KINDS, clock=lambda: NOW, workers=64)


def value(metrics: Metrics, metric: str, /, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(metric, labels)


@pytest.mark.parametrize("transition", list(Transition))
def test_each_transition_has_its_counter(metrics: Metrics, transition: Transition) -> None:
    for _ in range(2):
        metrics.transition(PYTORCH, JOB, transition)
    counted = {one: value(metrics, f"training_operator_jobs_{one}_total", **LABELS) for one in Transition}
    assert counted == {one: 2 if one is transition else None for one in Transition}


def test_every_deleted_job_counts(metrics: Metrics) -> None:
    metrics.job_deleted(PYTORCH, JOB)
    assert value(metrics, "training_operator_jobs_deleted_total", **LABELS) == 1


@pytest.mark.parametrize(
    ("outcome", "result", "errors", "terminal"),
    [
        (Done(), "success", 0, 0),
        (RequeueAfter(0), "requeue", 0, 0),
        (RequeueAfter(7), "requeue_after", 0, 0),
        (Retry("quota"), "error", 1, 0),
        (Terminal("invalid"), "error", 1, 1),
    ],
)
def test_a_look_at_a_job_counts_by_its_outcome(
    metrics: Metrics, outcome: Outcome, result: str, errors: int, terminal: int
) -> None:
    metrics.reconciled(PYTORCH, outcome, 0.02)
    assert value(metrics, "controller_runtime_reconcile_total", **CONTROLLER, result=result) == 1
    assert value(metrics, "controller_runtime_reconcile_errors_total", **CONTROLLER) == errors
    assert value(metrics, "controller_runtime_terminal_reconcile_errors_total", **CONTROLLER) == terminal
    assert value(metrics, "controller_runtime_reconcile_time_seconds_sum", **CONTROLLER) == 0.02
    assert value(metrics, "controller_runtime_reconcile_panics_total", **CONTROLLER) == 0


def test_an_error_of_our_own_counts_as_a_panic(metrics: Metrics) -> None:
    metrics.crashed(PYTORCH)
    assert value(metrics, "controller_runtime_reconcile_panics_total", **CONTROLLER) == 1


def test_the_delay_until_a_job_runs_is_measured_once(metrics: Metrics) -> None:
    status: Object = {}
    set_condition(status, RUNNING, reason="PyTorchJobRunning", message="", now=NOW, truth=True)
    runs = JOB | {"status": status}
    metrics.status_written(PYTORCH, JOB, runs)
    metrics.status_written(PYTORCH, runs, runs)
    assert value(metrics, "trainwright_job_running_seconds_count", framework="pytorch") == 1
    assert value(metrics, "trainwright_job_running_seconds_sum", framework="pytorch") == 3


def test_the_delay_until_all_pods_are_there_is_measured_once_for_each_launch(metrics: Metrics) -> None:
    resumed: Object = {}
    set_condition(resumed, RUNNING, reason="PyTorchJobSuspended", message="", now=NOW, truth=False)
    set_condition(resumed, SUSPENDED, reason="PyTorchJobResumed", message="", now=NOW, truth=False)
    for job in (JOB, JOB, JOB | {"status": resumed}, JOB | {"status": resumed}):
        metrics.pods_created(PYTORCH, job)
    assert value(metrics, "trainwright_job_pods_created_seconds_count", framework="pytorch") == 2
    assert value(metrics, "trainwright_job_pods_created_seconds_sum", framework="pytorch") == 3


@pytest.mark.parametrize("condition", [RUNNING, RESTARTING])
def test_a_pod_that_is_replaced_is_no_launch_even_for_a_process_that_saw_none(metrics: Metrics, condition: str) -> None:
    status: Object = {}
    set_condition(status, condition, reason=f"PyTorchJob{condition}", message="", now=NOW, truth=True)
    metrics.pods_created(PYTORCH, JOB | {"status": status})
    assert not value(metrics, "trainwright_job_pods_created_seconds_count", framework="pytorch")


def test_the_delay_until_all_pods_are_there_is_never_negative(metrics: Metrics) -> None:
    for _ in range(2):
        metrics.pods_created(PYTORCH, JOB)
    other = JOB | {"metadata": {**JOB["metadata"], "uid": "u2", "creationTimestamp": "2026-11-15T12:00:01Z"}}
    metrics.pods_created(PYTORCH, other)  # made by a server whose clock is ahead
    assert value(metrics, "trainwright_job_pods_created_seconds_count", framework="pytorch") == 2
    assert value(metrics, "trainwright_job_pods_created_seconds_sum", framework="pytorch") == 3


def test_requests_count_by_what_came_back(metrics: Metrics) -> None:
    seen = metrics.requests_to("https://10.0.0.1:443")
    seen(RequestSeen(Request("GET", "/api/v1/pods"), 200, 0.5))
    seen(RequestSeen(Request("GET", "/api/v1/pods"), None, 0.25))
    for code in ("200", "<error>"):
        assert value(metrics, "rest_client_requests_total", code=code, method="GET", host="10.0.0.1:443") == 1
    labels = {"verb": "GET", "host": "10.0.0.1:443"}
    assert value(metrics, "rest_client_request_duration_seconds_sum", **labels) == 0.75


def test_reviews_and_leadership_are_shown(metrics: Metrics) -> None:
    assert value(metrics, "leader_election_master_status", name="lock") is None
    metrics.leads("lock", True)
    assert value(metrics, "leader_election_master_status", name="lock") == 1
    metrics.leads("lock", False)
    assert value(metrics, "leader_election_master_status", name="lock") == 0
    metrics.reviewed("/validate-kubeflow-org-v1-pytorchjob", 200, 0.1)
    path = {"webhook": "/validate-kubeflow-org-v1-pytorchjob"}
    assert value(metrics, "controller_runtime_webhook_requests_total", **path, code="200") == 1


async def test_the_queue_is_measured_as_one_for_each_kind(metrics: Metrics) -> None:
    name = {**CONTROLLER, "name": "pytorchjob-controller"}
    metrics.queue.add(ObjectKey("PyTorchJob", "here", "a"))
    metrics.queue.add(ObjectKey("PyTorchJob", "here", "b"))
    assert value(metrics, "workqueue_depth", **name) == 2
    await metrics.queue.get()
    assert value(metrics, "workqueue_depth", **name) == 1
    assert value(metrics, "controller_runtime_active_workers", **CONTROLLER) == 1
    assert value(metrics, "workqueue_adds_total", **name) == 2
    assert value(metrics, "workqueue_queue_duration_seconds_count", **name) == 1
    assert value(metrics, "controller_runtime_max_concurrent_reconciles", **CONTROLLER) == 64


async def test_the_page_is_what_prometheus_reads(metrics: Metrics) -> None:
    metrics.transition(PYTORCH, JOB, Transition.CREATED)
    answer = await metrics.page(Call("/metrics", {}, "", b""))
    assert (answer.status, answer.content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    families = {family.name: family for family in text_string_to_metric_families(answer.body.decode())}
    (sample,) = families["training_operator_jobs_created"].samples
    assert (sample.labels, sample.value) == (LABELS, 1)
    assert families["process_resident_memory_bytes"].samples[0].value > 2**20
    modern = await metrics.page(Call("/metrics", {}, "application/openmetrics-text; version=1.0.0", b""))
    assert modern.content_type.startswith("application/openmetrics-text")


async def test_the_documented_names_are_exactly_those_that_are_exported(metrics: Metrics) -> None:
    answer = await metrics.page(Call("/metrics", {}, "", b""))
    exported = set(re.findall(r"^# TYPE (\S+)", answer.body.decode(), flags=re.MULTILINE))
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `([a-z_]+)", page, flags=re.MULTILINE))
    assert documented == exported
