"""The operator at work on a real API server: many jobs, bad ones among them, and every interruption it must survive."""

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from tests.support.background import in_background
from tests.support.engine.planning import STARTED
from tests.support.harness.job_harness import submit
from tests.support.harness.running_operator import running_operator, settled
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.kubernetes.fake_kubelet import running_kubelet
from tests.support.objects.jobs import JobBuilder, PodBuilder, template
from tests.support.waiting import eventually
from trainwright.api.job import Job
from trainwright.api.kinds import PYTORCH
from trainwright.engine.addressing import Addresses
from trainwright.engine.children.ranks import Rank
from trainwright.engine.framework import PodShape
from trainwright.engine.frameworks import FRAMEWORKS
from trainwright.engine.frameworks.pytorch import PyTorch
from trainwright.engine.settings import Settings
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.kube.client.requests import Request, Response
from trainwright.kube.controller import controller
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.objects import Object
from trainwright.objects.metadata import controller_reference
from trainwright.objects.resources import AUTOSCALERS, EVENTS, NAMESPACES, PODS
from trainwright.operator import JobController, job_controller

pytestmark = pytest.mark.apiserver


class WriteCounter(Client):
    """A client that counts what it was asked to change."""

    writes = 0

    async def send(self, request: Request) -> Response:
        self.writes += request.method != "GET"
        return await super().send(request)


class EventWrites(Client):
    """A client that keeps its writes of events."""

    def __init__(self, config: ClusterConfig) -> None:
        super().__init__(config)
        self.writes: list[tuple[str, Object]] = []

    async def send(self, request: Request) -> Response:
        if request.method != "GET" and "/events" in request.path:
            self.writes.append((request.method, msgspec.json.decode(request.body or b"{}")))
        return await super().send(request)


async def test_a_bad_job_is_shown_as_failed_and_does_not_delay_others(client: Client, real_namespace: str) -> None:
    nameless = template(name="not-pytorch")
    async with running_operator(client, namespace=real_namespace):
        await submit(client, JobBuilder("bad", namespace=real_namespace).master().workers(2, pod=nameless))
        await submit(client, JobBuilder("good", namespace=real_namespace).master().workers(2))

        await eventually(lambda: pods(client, real_namespace), lambda names: len(names) == 3)
        failed = await eventually(lambda: job(client, real_namespace, "bad"), lambda seen: "status" in seen)
        found = await eventually(lambda: events(client, real_namespace, "bad"), bool)

    field = "spec.pytorchReplicaSpecs[Worker].template.spec.containers"
    (condition,) = (one for one in failed["status"]["conditions"] if one["type"] == "Failed")
    assert (condition["status"], condition["reason"]) == ("True", "PyTorchJobFailedValidation")
    assert field in condition["message"]
    ((kind, reason, message),) = found
    assert (kind, reason) == ("Warning", "PyTorchJobFailedValidation")
    assert field in message
    assert await pods(client, real_namespace) == {"good-master-0", "good-worker-0", "good-worker-1"}


async def test_a_misspelt_field_in_a_template_fails_the_job_by_its_name(client: Client, real_namespace: str) -> None:
    async with running_operator(client, namespace=real_namespace):
        await submit(client, JobBuilder("typo", namespace=real_namespace).master(pod=template(comand=["true"])))
        failed = await eventually(
            lambda: job(client, real_namespace, "typo"), lambda seen: "completionTime" in seen.get("status", {})
        )
        assert failed["status"]["conditions"][-1]["message"] == (
            "PyTorchJob failed validation because spec.pytorchReplicaSpecs[Master].template: Pod in version "
            '"v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.containers[0].comand"'
        )
        await eventually(
            lambda: events(client, real_namespace, "typo"),
            lambda found: any(
                (kind, reason) == ("Warning", "FailedCreatePod") and 'field "spec.containers[0].comand"' in message
                for kind, reason, message in found
            ),
        )


class FailingFramework(PyTorch):
    """A framework with an error that shows in one job only."""

    def pod_shapes(self, job: Job, addresses: Addresses, settings: Settings) -> Callable[[Rank], PodShape]:
        if job.name == "failing":
            raise ZeroDivisionError
        return super().pod_shapes(job, addresses, settings)


WITH_FAILING_FRAMEWORK = {**FRAMEWORKS, "pytorch": FailingFramework()}


async def test_unexpected_error_in_one_job_does_not_stop_others(
    client: Client, real_namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_operator(client, namespace=real_namespace, frameworks=WITH_FAILING_FRAMEWORK):
        await submit(client, JobBuilder("failing", namespace=real_namespace).master())
        await submit(client, JobBuilder("sane", namespace=real_namespace).master())
        await eventually(lambda: pods(client, real_namespace), lambda names: names == {"sane-master-0"})
        await eventually(lambda: tries(caplog), bool)
    assert f"PyTorchJob/{real_namespace}/failing: unexpected error" in caplog.text


async def test_unexpected_error_is_one_event_however_often_it_is_retried(
    client: Client, real_namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        EventWrites(client.config) as observed,
        running_operator(observed, namespace=real_namespace, frameworks=WITH_FAILING_FRAMEWORK) as operator,
    ):
        await submit(client, JobBuilder("failing", namespace=real_namespace).master())
        await eventually(lambda: tries(caplog), lambda count: count >= 5)
        await eventually(lambda: events(client, real_namespace, "failing"), bool)
        await settled(operator)

    (event,) = (body for method, body in observed.writes if method == "POST" and body["reason"] == "ReconcileError")
    assert [method for method, _ in observed.writes if method != "POST"] == []
    assert event["type"] == "Warning"
    assert event["message"] == (
        "failed to reconcile: unexpected ZeroDivisionError in the operator, which keeps trying; this is a defect of "
        "the operator: its log has the details, please report them"
    )


async def test_a_settled_job_causes_no_write(control_plane: ControlPlane, client: Client, real_namespace: str) -> None:
    async with (
        WriteCounter(control_plane.config) as counted,
        running_kubelet(client, real_namespace),
        running_operator(counted, namespace=real_namespace) as operator,
    ):
        await submit(client, JobBuilder("quiet", namespace=real_namespace).master().workers(2))
        await running(client, real_namespace, "quiet")
        await settled(operator)
        before = counted.writes
        assert before > 0

        names = await pods(client, real_namespace)
        for name in names:
            await client.patch(PODS, name, {"metadata": {"annotations": {"a": "b"}}}, namespace=real_namespace)
        await eventually(lambda: touched(operator), lambda count: count == len(names))
        await settled(operator)
        assert counted.writes == before


async def test_restarts_by_the_kubelet_count_against_the_backoff_limit(client: Client, real_namespace: str) -> None:
    async with running_kubelet(client, real_namespace) as kubelet, running_operator(client, namespace=real_namespace):
        builder = JobBuilder("tired", namespace=real_namespace).master().workers(1, policy="OnFailure")
        await submit(client, builder.run_policy(backoffLimit=3, cleanPodPolicy="All"))
        await running(client, real_namespace, "tired")
        await kubelet.start("tired-worker-0", restarts=3)
        failed = await eventually(
            lambda: job(client, real_namespace, "tired"), lambda seen: "completionTime" in seen["status"]
        )
        await eventually(lambda: pods(client, real_namespace), lambda left: not left)
    assert failed["status"]["conditions"][-1]["message"] == (
        "Job tired has failed because it has reached the specified backoff limit"
    )


async def test_running_job_that_is_edited_to_be_invalid_is_cleaned_up_and_deleted(
    client: Client, real_namespace: str
) -> None:
    async with running_kubelet(client, real_namespace), running_operator(client, namespace=real_namespace):
        builder = JobBuilder("spoilt", namespace=real_namespace).master().workers(1)
        await submit(client, builder.run_policy(cleanPodPolicy="All", ttlSecondsAfterFinished=1))
        await running(client, real_namespace, "spoilt")
        broken = builder.workers(1, pod=template(name="not-pytorch")).raw()
        await client.patch(PYTORCH.resource, "spoilt", {"spec": broken["spec"]}, namespace=real_namespace)
        await eventually(lambda: pods(client, real_namespace), lambda left: not left)
        found = await eventually(
            lambda: events(client, real_namespace, "spoilt"),
            lambda seen: ("Normal", "SuccessfulDeletePod", "Deleted job: spoilt") in seen,
        )
    assert any(reason == "PyTorchJobFailedValidation" for _, reason, _ in found)


async def test_only_the_given_namespace_is_reconciled(client: Client, real_namespace: str) -> None:
    other = f"{real_namespace}-other"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": other}})
    async with running_operator(client, namespace=real_namespace) as operator:
        await submit(client, JobBuilder("elsewhere", namespace=other).master())
        await submit(client, JobBuilder("here", namespace=real_namespace).master())
        await eventually(lambda: pods(client, real_namespace), lambda names: names == {"here-master-0"})
        await settled(operator)
    assert "status" not in await job(client, other, "elsewhere")
    await client.delete(NAMESPACES, other)


async def test_name_conflict_is_reported_and_resolved(client: Client, real_namespace: str) -> None:
    foreign = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "late-worker-0", "namespace": real_namespace},
        "spec": {"containers": [{"name": "main", "image": "example.com/other:1"}]},
    }
    await client.create(PODS, foreign)
    async with running_operator(client, namespace=real_namespace):
        await submit(client, JobBuilder("late", namespace=real_namespace).master().workers(1))
        found = await eventually(
            lambda: events(client, real_namespace, "late"),
            lambda seen: any(reason == "ErrResourceExists" for _, reason, _ in seen),
        )
        assert any("late-worker-0" in message and "already exists" in message for _, _, message in found)

        await client.delete(PODS, "late-worker-0", namespace=real_namespace, grace_period_seconds=0)
        await eventually(lambda: owned_pods(client, real_namespace), lambda names: "late-worker-0" in names)


async def test_standing_warning_is_one_event_through_all_restarts(client: Client, real_namespace: str) -> None:
    wrong = JobBuilder("wrong", namespace=real_namespace).master().annotation("trainwright.dev/restart-scope", "galaxy")

    async def warnings() -> list[str]:
        found = await client.list(EVENTS, namespace=real_namespace, field_selector="involvedObject.name=wrong")
        return [event["metadata"]["uid"] for event in found.items if event["reason"] == "InvalidAnnotation"]

    async with running_operator(client, namespace=real_namespace):
        await submit(client, wrong)
        first = await eventually(warnings, bool)
    async with running_operator(client, namespace=real_namespace) as operator:
        await settled(operator)
    assert await warnings() == first
    assert len(first) == 1


async def test_child_enqueues_the_job_that_owns_it_or_that_its_label_names(client: Client) -> None:
    operator = JobController(client)
    operator.ready.set()
    for name in ("ours", "nobodys", "strangers"):
        operator.caches.jobs[PYTORCH.name].store.remember(JobBuilder(name).master().raw())
    replica_set = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "u", "controller": True}
    for child in (
        PodBuilder(job="ours"),
        PodBuilder(job="nobodys").owner(None),
        PodBuilder(job="strangers").metadata(ownerReferences=[replica_set]),
    ):
        operator.on_child_change(None, child.pod())
    enqueued = [await operator.queue.get() for _ in range(3)]
    assert [*map(str, enqueued)] == ["PyTorchJob/team/ours", "PyTorchJob/team/nobodys", "PyTorchJob/team/strangers"]


async def test_new_job_comes_before_others(client: Client) -> None:
    operator = JobController(client)
    operator.ready.set()
    for job in (JobBuilder("old").master().status(STARTED), JobBuilder("new").master()):
        operator.on_job_change(None, job.raw())
    assert [str(await operator.queue.get()) for _ in range(2)] == ["PyTorchJob/team/new", "PyTorchJob/team/old"]


async def test_child_of_an_unknown_job_enqueues_nothing(client: Client) -> None:
    operator = JobController(client)
    operator.ready.set()
    for child in (PodBuilder(job="gone"), PodBuilder(job="never-there").owner(None)):
        operator.on_child_change(None, child.pod())
    assert len(operator.queue) == 0


async def test_deleted_job_leaves_nothing_in_the_queue(client: Client, real_namespace: str) -> None:
    async with running_operator(client, namespace=real_namespace) as operator:
        builder = JobBuilder("patient", namespace=real_namespace).master()
        await submit(client, builder.run_policy(activeDeadlineSeconds=10**6))
        key = ObjectKey("PyTorchJob", real_namespace, "patient")

        async def state() -> tuple[bool, bool]:
            return operator.queue.is_idle, key in operator.queue

        await eventually(state, lambda found: found == (True, True))  # it waits for its deadline
        await client.delete(PYTORCH.resource, "patient", namespace=real_namespace)
        await eventually(state, lambda found: found == (True, False))


async def test_extra_object_without_label_of_a_finished_job_is_deleted(client: Client, real_namespace: str) -> None:
    """Another operator, or an earlier version of this one, created it without the label."""
    job = await submit(client, JobBuilder("done", namespace=real_namespace).workers(1))
    succeeded = {"type": "Succeeded", "status": "True", "reason": "PyTorchJobSucceeded", "message": "done"}
    status = {"conditions": [succeeded], "completionTime": "2026-11-15T04:00:00Z"}
    await client.replace(PYTORCH.resource, {**job, "status": status}, subresource="status")
    target = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "done"}
    metadata = {"name": "done", "namespace": real_namespace, "ownerReferences": [controller_reference(job)]}
    spec = {"scaleTargetRef": target, "maxReplicas": 2}
    autoscaler = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": metadata, "spec": spec}
    foreign = {**autoscaler, "metadata": {"name": "foreign", "namespace": real_namespace}}
    for one in (autoscaler, foreign):
        await client.create(AUTOSCALERS, one)

    async def left() -> list[str]:
        found = await client.list(AUTOSCALERS, namespace=real_namespace)
        return [one["metadata"]["name"] for one in found.items]

    async with running_operator(client, namespace=real_namespace):
        assert await eventually(left, lambda names: len(names) == 1) == ["foreign"]


async def test_stopped_operator_has_recorded_all_events(
    client: Client, real_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However slow the machine is; `test_stopping` shows that these times are limited.
    monkeypatch.setattr(controller, "DRAIN_SECONDS", 60)
    monkeypatch.setattr(job_controller, "_EVENT_SECONDS", 60)
    async with running_operator(client, namespace=real_namespace):
        await submit(client, JobBuilder("brief", namespace=real_namespace).master().workers(8))
        await eventually(lambda: pods(client, real_namespace), lambda names: len(names) > 0)

    created = {("Normal", "SuccessfulCreatePod", f"Created pod: {name}") for name in await pods(client, real_namespace)}
    assert created
    assert created <= await events(client, real_namespace, "brief")


async def test_the_api_server_may_restart_at_any_time(
    control_plane: ControlPlane, client: Client, real_namespace: str
) -> None:
    async with running_kubelet(client, real_namespace), running_operator(client, namespace=real_namespace):
        await submit(client, JobBuilder("before", namespace=real_namespace).master().workers(1))
        await running(client, real_namespace, "before")

        control_plane.apiserver.stop(kill=True)
        control_plane.apiserver.restart()

        await patiently(client, JobBuilder("after", namespace=real_namespace).master().workers(1))
        await running(client, real_namespace, "after")
    assert await pods(client, real_namespace) == {
        "before-master-0",
        "before-worker-0",
        "after-master-0",
        "after-worker-0",
    }


async def test_operator_continues_after_a_kill(
    control_plane: ControlPlane, client: Client, real_namespace: str
) -> None:
    """SIGKILL while pods are being created, four times over; no rank ever gets a second pod, nothing is counted."""
    wanted = 6 * 5
    async with running_kubelet(client, real_namespace), pod_uids(client, real_namespace) as uids:
        for number in range(6):
            await submit(client, JobBuilder(f"job-{number}", namespace=real_namespace).master().workers(4))
        for share in (1, wanted // 3, wanted // 2):
            killed = await operator_process(control_plane, real_namespace)
            await pods_there(client, real_namespace, at_least=share)
            killed.kill()
            await killed.wait()
        last = await operator_process(control_plane, real_namespace)
        for number in range(6):
            await running(client, real_namespace, f"job-{number}")
        last.terminate()
        assert await last.wait() == 0

        async def seen() -> int:
            return len(uids)

        await eventually(seen, lambda count: count == wanted)
    assert {name: len(seen) for name, seen in uids.items() if len(seen) > 1} == {}
    for number in range(6):
        assert "restarts" not in (await job(client, real_namespace, f"job-{number}"))["status"]


# Helpers


async def tries(caplog: pytest.LogCaptureFixture) -> int:
    return caplog.text.count("/failing: unexpected error")


async def patiently(client: Client, builder: JobBuilder) -> None:
    """Submits as soon as the API server takes it."""

    async def attempt() -> bool:
        try:
            await submit(client, builder)
        except (ApiError, Unreachable):
            return False
        return True

    await eventually(attempt, bool)


async def job(client: Client, namespace: str, name: str) -> Object:
    return await client.get(PYTORCH.resource, name, namespace=namespace)


async def pods(client: Client, namespace: str) -> set[str]:
    return {pod["metadata"]["name"] for pod in (await client.list(PODS, namespace=namespace)).items}


async def pods_there(client: Client, namespace: str, *, at_least: int) -> None:
    await eventually(lambda: pods(client, namespace), lambda names: len(names) >= at_least)


async def owned_pods(client: Client, namespace: str) -> set[str]:
    found = (await client.list(PODS, namespace=namespace)).items
    return {pod["metadata"]["name"] for pod in found if pod["metadata"].get("ownerReferences")}


async def events(client: Client, namespace: str, name: str) -> set[tuple[str, str, str]]:
    found = await client.list(EVENTS, namespace=namespace, field_selector=f"involvedObject.name={name}")
    return {(event["type"], event["reason"], event["message"]) for event in found.items}


async def running(client: Client, namespace: str, name: str) -> None:
    def all_active(seen: Object) -> bool:
        wanted = {role: spec["replicas"] for role, spec in seen["spec"]["pytorchReplicaSpecs"].items()}
        statuses = seen.get("status", {}).get("replicaStatuses", {})
        return {role: statuses.get(role, {}).get("active", 0) for role in wanted} == wanted

    async def look() -> Object:
        try:
            return await job(client, namespace, name)
        except (ApiError, Unreachable):
            return {"spec": {"pytorchReplicaSpecs": {"Master": {"replicas": 1}}}}

    await eventually(look, all_active, seconds=60)


async def touched(operator: JobController) -> int:
    return sum(bool(pod.metadata.annotations) for pod in operator.caches.pods.store.all())


@asynccontextmanager
async def pod_uids(client: Client, namespace: str) -> AsyncIterator[dict[str, set[str]]]:
    """Every pod that there ever was, by name."""
    seen: dict[str, set[str]] = defaultdict(set)
    start = (await client.list(PODS, namespace=namespace)).resource_version

    async def follow() -> None:
        async for event in client.watch(PODS, namespace=namespace, resource_version=start):
            seen[event.object["metadata"]["name"]].add(event.object["metadata"]["uid"])

    async with in_background(follow()):
        yield seen


async def operator_process(plane: ControlPlane, namespace: str) -> asyncio.subprocess.Process:
    program = (
        "import asyncio, sys, pathlib; from trainwright.operator.options import OperatorOptions; "
        "from trainwright.operator.main import run_operator; "
        "asyncio.run(run_operator(OperatorOptions(kubeconfig=pathlib.Path(sys.argv[1]), namespace=sys.argv[2])))"
    )
    return await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(plane.kubeconfig), namespace)
