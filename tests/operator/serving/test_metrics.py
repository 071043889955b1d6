"""The Prometheus metrics: what each hook changes, and that the documented names are the exported ones."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.engine.conditions import CREATED, RESTARTING, RUNNING, SUSPENDED, set_condition
from trainwright.engine.plan import Transition
from trainwright.kube.client.requests import Request, RequestResult
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import Done, Outcome, RequeueAfter, Retry, Terminal
from trainwright.objects import Object
from trainwright.operator.serving.http_server import Request as HttpRequest
from trainwright.operator.serving.metrics import Metrics, launch_time, starts_running

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


@pytest.mark.parametrize(
    ("kind", "framework"),
    {
        "PyTorchJob": "pytorch",
        "TFJob": "tensorflow",
        "XGBoostJob": "xgboost",
        "PaddleJob": "paddle",
        "JAXJob": "jax",
    }.items(),
)
def test_jobs_are_counted_by_framework(metrics: Metrics, kind: str, framework: str) -> None:
    metrics.transition(KINDS[kind], {**JOB, "kind": kind}, Transition.CREATED)
    labels = {"job_namespace": "here", "framework": framework}
    assert value(metrics, "training_operator_jobs_created_total", **labels) == 1


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
def test_reconciliations_are_counted_by_result(
    metrics: Metrics, outcome: Outcome, result: str, errors: int, terminal: int
) -> None:
    metrics.reconciled(PYTORCH, outcome, 0.02)
    assert value(metrics, "controller_runtime_reconcile_total", **CONTROLLER, result=result) == 1
    assert value(metrics, "controller_runtime_reconcile_errors_total", **CONTROLLER) == errors
    assert value(metrics, "controller_runtime_terminal_reconcile_errors_total", **CONTROLLER) == terminal
    assert value(metrics, "controller_runtime_reconcile_time_seconds_sum", **CONTROLLER) == 0.02
    assert value(metrics, "controller_runtime_reconcile_panics_total", **CONTROLLER) == 0


def test_an_unexpected_error_counts_as_a_panic(metrics: Metrics) -> None:
    metrics.crashed(PYTORCH)
    assert value(metrics, "controller_runtime_reconcile_panics_total", **CONTROLLER) == 1


def test_the_delay_until_a_job_runs_is_measured_once(metrics: Metrics) -> None:
    status: Object = {}
    set_condition(status, RUNNING, reason="PyTorchJobRunning", message="", now=NOW, value=True)
    runs = JOB | {"status": status}
    metrics.status_written(PYTORCH, JOB, runs)
    metrics.status_written(PYTORCH, runs, runs)
    assert value(metrics, "trainwright_job_running_seconds_count", framework="pytorch") == 1
    assert value(metrics, "trainwright_job_running_seconds_sum", framework="pytorch") == 3


def test_the_delay_until_all_pods_are_created_is_measured_once_for_each_launch(metrics: Metrics) -> None:
    resumed: Object = {}
    set_condition(resumed, RUNNING, reason="PyTorchJobSuspended", message="", now=NOW, value=False)
    set_condition(resumed, SUSPENDED, reason="PyTorchJobResumed", message="", now=NOW, value=False)
    for job in (JOB, JOB, JOB | {"status": resumed}, JOB | {"status": resumed}):
        metrics.pods_created(PYTORCH, job)
    assert value(metrics, "trainwright_job_pods_created_seconds_count", framework="pytorch") == 2
    assert value(metrics, "trainwright_job_pods_created_seconds_sum", framework="pytorch") == 3


@pytest.mark.parametrize("condition", [RUNNING, RESTARTING])
def test_a_pod_that_is_replaced_is_no_launch_even_for_a_new_process(metrics: Metrics, condition: str) -> None:
    status: Object = {}
    set_condition(status, condition, reason=f"PyTorchJob{condition}", message="", now=NOW, value=True)
    metrics.pods_created(PYTORCH, JOB | {"status": status})
    assert not value(metrics, "trainwright_job_pods_created_seconds_count", framework="pytorch")


def test_the_delay_until_all_pods_are_created_is_never_negative(metrics: Metrics) -> None:
    for _ in range(2):
        metrics.pods_created(PYTORCH, JOB)
    other = JOB | {"metadata": {**JOB["metadata"], "uid": "u2", "creationTimestamp": "2026-11-15T12:00:01Z"}}
    metrics.pods_created(PYTORCH, other)  # made by a server whose clock is ahead
    assert value(metrics, "trainwright_job_pods_created_seconds_count", framework="pytorch") == 2
    assert value(metrics, "trainwright_job_pods_created_seconds_sum", framework="pytorch") == 3


def test_requests_are_counted_by_status_code(metrics: Metrics) -> None:
    seen = metrics.requests_to("https://10.0.0.1:443")
    seen(RequestResult(Request("GET", "/api/v1/pods"), 200, 0.5))
    seen(RequestResult(Request("GET", "/api/v1/pods"), None, 0.25))
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


async def test_prometheus_can_parse_the_metrics(metrics: Metrics) -> None:
    metrics.transition(PYTORCH, JOB, Transition.CREATED)
    response = await metrics.handle(HttpRequest("/metrics", {}, "", b""))
    assert (response.status, response.content_type) == (200, "text/plain; version=0.0.4; charset=utf-8")
    families = {family.name: family for family in text_string_to_metric_families(response.body.decode())}
    (sample,) = families["training_operator_jobs_created"].samples
    assert (sample.labels, sample.value) == (LABELS, 1)
    assert families["process_resident_memory_bytes"].samples[0].value > 2**20
    modern = await metrics.handle(HttpRequest("/metrics", {}, "application/openmetrics-text; version=1.0.0", b""))
    assert modern.content_type.startswith("application/openmetrics-text")


async def test_the_documented_names_are_exactly_those_that_are_exported(metrics: Metrics) -> None:
    response = await metrics.handle(HttpRequest("/metrics", {}, "", b""))
    exported = set(re.findall(r"^# TYPE (\S+)", response.body.decode(), flags=re.MULTILINE))
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    documented = set(re.findall(r"^\| `([a-z_]+)", page, flags=re.MULTILINE))
    assert documented == exported


def job_with(*steps: tuple[str, str, bool]) -> Object:
    """A job whose conditions were set one after the other, a second apart, by the engine's own rule."""
    status: Object = {}
    for second, (kind, reason, truth) in enumerate(steps):
        set_condition(
            status, kind, reason=f"PyTorchJob{reason}", message="", now=NOW.replace(second=second), value=truth
        )
    return {"metadata": {"creationTimestamp": "2026-11-15T11:59:58Z"}, "status": status}


created = (CREATED, "Created", True)
running = (RUNNING, "Running", True)
restarting = (RESTARTING, "Restarting", True)
halted = (RUNNING, "Suspended", False)
suspended = (SUSPENDED, "Suspended", True)
resumed = (SUSPENDED, "Resumed", False)


@pytest.mark.parametrize(
    ("before", "step", "first"),
    [
        ((created,), running, True),
        ((created, running), running, False),
        ((created,), restarting, False),
        ((created, running, restarting), running, False),
        ((created, suspended, resumed), running, True),
        ((created, running, halted, suspended, resumed), running, True),
        ((created, running), (RUNNING, "Succeeded", False), False),
    ],
)
def test_a_job_starts_running_once_for_each_launch(
    before: tuple[tuple[str, str, bool], ...], step: tuple[str, str, bool], first: bool
) -> None:
    assert starts_running(job_with(*before), job_with(*before, step)) is first


def test_a_launch_begins_with_the_creation_or_the_resumption() -> None:
    assert launch_time(job_with(created)) == datetime(2026, 11, 15, 11, 59, 58, tzinfo=UTC)
    assert launch_time(job_with(created, suspended)) == datetime(2026, 11, 15, 11, 59, 58, tzinfo=UTC)
    assert launch_time(job_with(created, suspended, resumed)) == NOW.replace(second=2)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(conditions=st.lists(junk | st.fixed_dictionaries({"type": st.just(SUSPENDED), "lastTransitionTime": junk})))
def test_a_status_written_by_hand_causes_no_error(conditions: list[object]) -> None:
    strange = {"metadata": {}, "status": {"conditions": conditions}}
    assert starts_running({"metadata": {}}, strange) is False
    assert launch_time(strange) is None
