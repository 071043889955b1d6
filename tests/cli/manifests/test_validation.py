"""Validation before apply, against the real API server: every error is found and nothing is stored."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.objects.shell_jobs import shell_job
from trainwright.api.kinds import PYTORCH
from trainwright.cli.errors import CommandError
from trainwright.cli.manifests.positions import Place
from trainwright.cli.manifests.reader import Document
from trainwright.cli.manifests.validation import ValidObject, unknown_kind, validate
from trainwright.kube.client.errors import NotFound
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS


def document(obj: Object, line: int = 1) -> Document:
    return Document(Place("job.yaml", line), Path("/home/me"), obj)


CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchjob"}, "did you mean PyTorchJob (kubeflow.org/v1)?"),
        ({"apiVersion": "v1", "kind": "PyTorchJob"}, "the apiVersion of PyTorchJob is kubeflow.org/v1"),
        ({"apiVersion": "v1", "kind": "Deployment"}, "the apiVersion of Deployment is apps/v1"),
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}, "`trainwright operator --install-crds`"),
        ({"apiVersion": "v1", "kind": "Zebra"}, "known kinds: ClusterRole, "),
        ({"apiVersion": "batch/v1beta1", "kind": "CronJob"}, "the apiVersion of CronJob is batch/v1"),
        (
            {"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob"},
            "this version is not supported yet; write the job for kubeflow.org/v1",
        ),
    ],
)
def test_an_unknown_kind_is_reported_with_a_suggestion(obj: Object, words: str) -> None:
    text = unknown_kind(document({**obj, "metadata": {"name": "x"}}), {})
    assert text.startswith(f'job.yaml:1: no matches for kind "{obj["kind"]}" in version "{obj["apiVersion"]}"')
    assert words in text


@pytest.fixture
def client(job_plane: ControlPlane) -> Iterator[SyncClient]:
    with SyncClient(job_plane.config) as client:
        yield client


def validated(client: SyncClient, namespace: str, *objects: Object) -> list[ValidObject]:
    return validate([document(obj, line) for line, obj in enumerate(objects, start=1)], client, namespace)


def error_lines(client: SyncClient, namespace: str, *objects: Object) -> list[str]:
    with pytest.raises(CommandError) as caught:
        validated(client, namespace, *objects)
    return caught.value.message.splitlines()


@pytest.mark.apiserver
class TestOnTheRealServer:
    def test_valid_objects_pass_and_are_not_stored(self, client: SyncClient, real_namespace: str) -> None:
        config, job = validated(client, real_namespace, CONFIG, shell_job("good", "true", "true"))
        assert (config.title, config.job) == ("configmap/settings", None)
        assert job.title == "pytorchjob.kubeflow.org/good"
        assert job.namespace == real_namespace
        with pytest.raises(NotFound):
            client.get(CONFIG_MAPS, "settings", namespace=real_namespace)
        with pytest.raises(NotFound):
            client.get(PYTORCH.resource, "good", namespace=real_namespace)

    def test_a_job_is_compared_as_the_server_stores_it(self, client: SyncClient, real_namespace: str) -> None:
        job = shell_job("stored", "true", runPolicy={"ttlSecondsAfterFinished": None})
        stored = client.create(PYTORCH.resource, job, namespace=real_namespace)
        [item] = validated(client, real_namespace, job)
        assert item.spec == stored["spec"]

    def test_all_errors_are_reported_at_once(self, client: SyncClient, real_namespace: str) -> None:
        job = shell_job("wrong", "true", "true")
        job["spec"]["runPolicy"] = {"backofLimit": 3}
        container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
        container["comand"] = container.pop("command")
        bad_config = {**CONFIG, "dta": {}}
        kindless = {"apiVersion": "v1", "kind": "Confgmap", "metadata": {"name": "x"}}
        lines = error_lines(client, real_namespace, bad_config, job, kindless)
        assert lines[0] == "nothing was applied:"
        text = "\n".join(lines)
        assert "job.yaml:1: ConfigMap settings: unknown field `dta`: did you mean `data`?" in text
        assert "unknown field `spec.runPolicy.backofLimit`: did you mean `backoffLimit`?" in text
        place = "spec.pytorchReplicaSpecs[Worker].template.spec.containers[0].comand"
        assert f"job.yaml:2: PyTorchJob wrong: unknown field `{place}`: did you mean `command`?" in text
        assert 'job.yaml:3: no matches for kind "Confgmap" in version "v1": did you mean ConfigMap (v1)?' in text

    def test_an_invalid_pod_template_is_reported(self, client: SyncClient, real_namespace: str) -> None:
        job = shell_job("wrong", "true")
        container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
        container["volumeMounts"] = [{"name": "models", "mountPath": "/models"}]
        [line] = error_lines(client, real_namespace, job)
        place = "spec.pytorchReplicaSpecs[Master].template.spec.containers[0].volumeMounts[0].name"
        assert line.startswith(f"job.yaml:1: PyTorchJob wrong: {place}: Not found")

    def test_a_wrong_type_in_a_template_is_reported(self, client: SyncClient, real_namespace: str) -> None:
        job = shell_job("wrong", "true", "true")
        roles = job["spec"]["pytorchReplicaSpecs"]
        roles["Master"]["template"]["spec"]["containers"][0]["env"] = [{"name": "EPOCHS", "value": 3}]
        roles["Worker"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "many"}}
        _, number, quantity = error_lines(client, real_namespace, job)
        place = (
            "job.yaml:1: PyTorchJob wrong: spec.pytorchReplicaSpecs[Master].template.spec.containers[0].env[0].value"
        )
        assert number == f"  {place}: must be a string, not 3: put it in quotes"
        place = "spec.pytorchReplicaSpecs[Worker].template.spec.containers[0].resources.limits[cpu]"
        assert quantity.startswith(f"  job.yaml:1: PyTorchJob wrong: {place}: 'many' is not a quantity: write ")

    @pytest.mark.parametrize(
        ("right", "wrong", "path"),
        [
            ("spec", "sepc", "sepc"),
            ("pytorchReplicaSpecs", "pytorchReplicasSpecs", "spec.pytorchReplicasSpecs"),
            ("template", "tempalte", "spec.pytorchReplicaSpecs.Master.tempalte"),
            ("containers", "conatiners", "spec.pytorchReplicaSpecs[Master].template.spec.conatiners"),
            ("labels", "lables", "metadata.lables"),
        ],
    )
    def test_a_required_field_that_is_misspelled_is_reported_as_such(
        self, client: SyncClient, real_namespace: str, right: str, wrong: str, path: str
    ) -> None:
        job = shell_job("wrong", "true")
        job["metadata"]["labels"] = {"team": "a"}
        spelt = json.loads(json.dumps(job).replace(f'"{right}"', f'"{wrong}"'))
        text = "\n".join(error_lines(client, real_namespace, spelt))
        assert f"job.yaml:1: PyTorchJob wrong: unknown field `{path}`: did you mean `{right}`?" in text

    def test_an_unknown_clean_pod_policy_is_refused(self, client: SyncClient, real_namespace: str) -> None:
        [line] = error_lines(client, real_namespace, shell_job("wrong", "true", runPolicy={"cleanPodPolicy": "none"}))
        assert line == (
            'job.yaml:1: PyTorchJob wrong: spec.runPolicy.cleanPodPolicy: Unsupported value: "none": '
            'supported values: "All", "Running", "None"'
        )

    def test_our_own_checks_come_first(self, client: SyncClient, real_namespace: str) -> None:
        job = shell_job("wrong", "true")
        job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"] = []
        job["metadata"]["name"] = "Wrong"
        lines = error_lines(client, real_namespace, job)
        place = "job.yaml:1: PyTorchJob Wrong: spec.pytorchReplicaSpecs[Master].template.spec.containers"
        assert f"  {place}: Required value: must be specified" in lines
        assert any('metadata.name: Invalid value: "Wrong"' in line for line in lines)

    def test_a_missing_namespace_is_named(self, client: SyncClient) -> None:
        [line] = error_lines(client, "nowhere", shell_job("lost", "true"))
        assert 'namespace "nowhere" not found' in line

    def test_a_namespace_may_come_with_the_manifest(self, client: SyncClient) -> None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "brought"}}
        _, job = validated(client, "brought", space, shell_job("inside", "true"))
        assert job.namespace == "brought"
