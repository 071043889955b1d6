"""Manifests on trial: everything that is wrong is found, on the real API server, before anything is applied."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.cluster.controlplane import ControlPlane
from tests.support.objects.shell_jobs import shell_job
from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.cli.errors import Problem
from trainwright.cli.manifests.reader import Document
from trainwright.cli.manifests.validation import Item, check, unknown_kind
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import NotFound
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS
from trainwright.operator import install_crds


def document(obj: Object, line: int = 1) -> Document:
    return Document("job.yaml", line, Path("/home/me"), obj)


CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchjob"}, "did you mean PyTorchJob (kubeflow.org/v1)?"),
        ({"apiVersion": "v1", "kind": "PyTorchJob"}, "PyTorchJob is of apiVersion kubeflow.org/v1"),
        ({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}, "`trainwright operator --install-crds`"),
        ({"apiVersion": "v1", "kind": "Zebra"}, "Known are ClusterRole, "),
    ],
)
def test_an_unknown_kind_is_answered_with_what_may_be_meant(obj: Object, words: str) -> None:
    text = unknown_kind(document({**obj, "metadata": {"name": "x"}}), {})
    assert text.startswith(f"job.yaml:1: unknown kind {obj['kind']} of {obj['apiVersion']}")
    assert words in text


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[SyncClient]:
    async with Client(control_plane.config) as installing:
        await install_crds(installing, KINDS.values())
    with SyncClient(control_plane.config) as client:
        yield client


def checked(client: SyncClient, namespace: str, *objects: Object) -> list[Item]:
    return check([document(obj, line) for line, obj in enumerate(objects, start=1)], client, namespace)


def refusal(client: SyncClient, namespace: str, *objects: Object) -> list[str]:
    with pytest.raises(Problem) as caught:
        checked(client, namespace, *objects)
    return caught.value.message.splitlines()


@pytest.mark.apiserver
class TestOnTheRealServer:
    def test_good_objects_pass_and_are_not_kept(self, client: SyncClient, real_namespace: str) -> None:
        config, job = checked(client, real_namespace, CONFIG, shell_job("good", "true", "true"))
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
        [item] = checked(client, real_namespace, job)
        assert item.spec == stored["spec"]

    def test_everything_that_is_wrong_is_said_at_once(self, client: SyncClient, real_namespace: str) -> None:
        job = shell_job("wrong", "true", "true")
        job["spec"]["runPolicy"] = {"backofLimit": 3}
        container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
        container["comand"] = container.pop("command")
        bad_config = {**CONFIG, "dta": {}}
        kindless = {"apiVersion": "v1", "kind": "Confgmap", "metadata": {"name": "x"}}
        lines = refusal(client, real_namespace, bad_config, job, kindless)
        assert lines[0] == "nothing was applied:"
        text = "\n".join(lines)
        assert "job.yaml:1: ConfigMap settings: unknown field `dta`: did you mean `data`?" in text
        assert "unknown field `spec.runPolicy.backofLimit`: did you mean `backoffLimit`?" in text
        place = "spec.pytorchReplicaSpecs[Worker].template.spec.containers[0].comand"
        assert f"job.yaml:2: PyTorchJob wrong: unknown field `{place}`: did you mean `command`?" in text
        assert "job.yaml:3: unknown kind Confgmap of v1: did you mean ConfigMap (v1)?" in text

    def test_what_a_pod_may_not_have_is_found_in_the_template(self, client: SyncClient, real_namespace: str) -> None:
        job = shell_job("wrong", "true")
        container = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
        container["volumeMounts"] = [{"name": "models", "mountPath": "/models"}]
        [line] = refusal(client, real_namespace, job)
        place = "spec.pytorchReplicaSpecs[Master].template.spec.containers[0].volumeMounts[0].name"
        assert line.startswith(f"job.yaml:1: PyTorchJob wrong: {place}: Not found")

    def test_a_value_of_the_wrong_type_is_found_in_the_template(self, client: SyncClient, real_namespace: str) -> None:
        job = shell_job("wrong", "true", "true")
        roles = job["spec"]["pytorchReplicaSpecs"]
        roles["Master"]["template"]["spec"]["containers"][0]["env"] = [{"name": "EPOCHS", "value": 3}]
        roles["Worker"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "many"}}
        _, number, quantity = refusal(client, real_namespace, job)
        place = (
            "job.yaml:1: PyTorchJob wrong: spec.pytorchReplicaSpecs[Master].template.spec.containers[0].env[0].value"
        )
        assert number == f"  {place}: must be text, not 3: put it in quotes"
        assert quantity.startswith("  job.yaml:1: PyTorchJob wrong: spec.pytorchReplicaSpecs[Worker].template: ")
        assert "quantities must match" in quantity

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
    def test_what_is_missing_because_it_is_misspelt_is_named(
        self, client: SyncClient, real_namespace: str, right: str, wrong: str, path: str
    ) -> None:
        job = shell_job("wrong", "true")
        job["metadata"]["labels"] = {"team": "a"}
        spelt = json.loads(json.dumps(job).replace(f'"{right}"', f'"{wrong}"'))
        text = "\n".join(refusal(client, real_namespace, spelt))
        assert f"job.yaml:1: PyTorchJob wrong: unknown field `{path}`: did you mean `{right}`?" in text

    def test_a_policy_that_would_delete_more_than_was_meant_is_refused(
        self, client: SyncClient, real_namespace: str
    ) -> None:
        [line] = refusal(client, real_namespace, shell_job("wrong", "true", runPolicy={"cleanPodPolicy": "none"}))
        assert line == (
            'job.yaml:1: PyTorchJob wrong: spec.runPolicy.cleanPodPolicy: Unsupported value: "none": '
            'supported values: "All", "Running", "None"'
        )

    def test_our_own_rules_speak_first(self, client: SyncClient, real_namespace: str) -> None:
        job = shell_job("wrong", "true")
        job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"] = []
        job["metadata"]["name"] = "Wrong"
        lines = refusal(client, real_namespace, job)
        place = "job.yaml:1: PyTorchJob Wrong: spec.pytorchReplicaSpecs[Master].template.spec.containers"
        assert f"  {place}: Required value: must be specified" in lines
        assert any('metadata.name: Invalid value: "Wrong"' in line for line in lines)

    def test_a_missing_namespace_is_named(self, client: SyncClient) -> None:
        [line] = refusal(client, "nowhere", shell_job("lost", "true"))
        assert "the namespace nowhere does not exist" in line

    def test_a_namespace_may_come_with_the_manifest(self, client: SyncClient) -> None:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "brought"}}
        _, job = checked(client, "brought", space, shell_job("inside", "true"))
        assert job.namespace == "brought"
