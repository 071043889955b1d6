"""The CRD on the real API server: which fields it stores, rejects and defaults."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.objects.jobs import JobBuilder, template
from trainwright.api.kinds import KINDS, PYTORCH, Kind
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import BadRequest, Invalid, NotFound
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.operator.setup.crds import install_crds

pytestmark = pytest.mark.apiserver


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> Iterator[SyncClient]:
    async def install() -> None:
        async with Client(control_plane.config) as client:
            await install_crds(client, KINDS.values())

    asyncio.run(install())
    with SyncClient(control_plane.config) as client:
        yield client


def manifest(builder: JobBuilder, namespace: str) -> Object:
    raw = builder.raw()
    return {**raw, "metadata": {"name": raw["metadata"]["name"], "namespace": namespace}}


def post(server: SyncClient, job: Object, *, validation: str = "Strict") -> Object:
    path = PYTORCH.resource.path(job["metadata"]["namespace"])
    answer: Object = json.loads(server.raw("POST", path, params={"fieldValidation": validation}, body=job))
    return answer


def test_template_is_stored_unchanged_and_a_run_policy_is_added(server: SyncClient, real_namespace: str) -> None:
    pod = template(futureField={"deep": [1]})
    pod["metadata"] = {"labels": {"app": "x"}, "annotations": {"a": "b"}}
    stored = post(server, manifest(JobBuilder().master(pod=pod), real_namespace))
    assert stored["spec"]["pytorchReplicaSpecs"]["Master"]["template"] == pod
    assert stored["spec"]["runPolicy"] == {"suspend": False}


def test_misspelt_field_is_rejected_by_name(server: SyncClient, real_namespace: str) -> None:
    with pytest.raises(BadRequest, match=r'unknown field \\?"spec.runPolicy.backofLimit'):
        post(server, manifest(JobBuilder().master().run_policy(backofLimit=3), real_namespace))


@pytest.mark.parametrize(
    ("builder", "message"),
    [
        (JobBuilder().run_policy(backoffLimit="x").master(), "spec.runPolicy.backoffLimit"),
        (JobBuilder().master(pod={"spec": {}}), r"template.spec.containers: Required value"),
        (JobBuilder().master(pod={"spec": {"containers": [{}]}}), r"containers\[0\].name: Required value"),
        (JobBuilder().workers(-1), "should be a non-negative integer"),
    ],
)
def test_invalid_job_is_rejected(server: SyncClient, real_namespace: str, builder: JobBuilder, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        post(server, manifest(builder, real_namespace))


def test_queue_and_manager_cannot_be_changed(server: SyncClient, real_namespace: str) -> None:
    builder = JobBuilder().master().run_policy(managedBy="kueue.x-k8s.io/multikueue")
    post(server, manifest(builder.run_policy(schedulingPolicy={"queue": "a"}), real_namespace))
    for change, message in (
        ({"schedulingPolicy": {"queue": "b"}}, "spec.runPolicy.schedulingPolicy.queue is immutable"),
        ({"managedBy": "kubeflow.org/training-operator"}, "field is immutable"),
    ):
        with pytest.raises(Invalid, match=message):
            server.patch(PYTORCH.resource, "digits", {"spec": {"runPolicy": change}}, namespace=real_namespace)


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_additional_status_fields_are_stored_and_workers_can_be_scaled_as_upstreams(
    server: SyncClient, real_namespace: str, kind: Kind
) -> None:
    first = kind.roles[0].name
    builder = JobBuilder(kind=kind).replica(first, 1).workers(2)
    server.create(kind.resource, manifest(builder, real_namespace))
    status = {
        "replicaStatuses": {"Worker": {"active": 2, "selector": "a=b"}},
        "restarts": {"Worker": 1},
        "replacedPods": ["u"],
        "completedIndexes": {"Worker": "0"},
        "startTime": "2026-11-15T04:00:00Z",
    }
    stored = server.patch(kind.resource, "digits", {"status": status}, namespace=real_namespace, subresource="status")
    assert stored["status"] == status

    def scale() -> Object:
        patch = {"spec": {"replicas": 5}}
        return server.patch(kind.resource, "digits", patch, namespace=real_namespace, subresource="scale")

    if kind.name in {"TFJob", "XGBoostJob", "MPIJob"}:
        with pytest.raises(NotFound):
            scale()
    else:
        assert scale()["status"] == {"replicas": 2, "selector": "a=b"}
        spec = server.get(kind.resource, "digits", namespace=real_namespace)["spec"]
        assert spec[kind.replicas_field]["Worker"]["replicas"] == 5


@pytest.mark.parametrize("roles", [["Master"], ["Master", "worker"]])
def test_scaling_a_role_that_the_job_does_not_have_is_rejected(
    server: SyncClient, real_namespace: str, roles: list[str]
) -> None:
    job = manifest(JobBuilder().master(), real_namespace)
    master = job["spec"]["pytorchReplicaSpecs"]["Master"]
    stored = post(server, {**job, "spec": {"pytorchReplicaSpecs": dict.fromkeys(roles, master)}})
    scale = {"spec": {"replicas": 2}}
    with pytest.raises(Invalid, match=r"spec.pytorchReplicaSpecs.Worker.template: Required value"):
        server.patch(PYTORCH.resource, "digits", scale, namespace=real_namespace, subresource="scale")
    assert server.get(PYTORCH.resource, "digits", namespace=real_namespace)["spec"] == stored["spec"]
