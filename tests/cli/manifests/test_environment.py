"""`--env`: the variables of the training containers, in a Secret of the job."""

import base64
import os
from pathlib import Path

import pytest

from tests.support.objects.shell_jobs import shell_job, shell_job_of
from trainwright.api.kinds import KINDS, Kind
from trainwright.cli.errors import CommandError
from trainwright.cli.manifests.environment import read_variables, with_variables
from trainwright.cli.manifests.positions import Place
from trainwright.cli.manifests.reader import Document
from trainwright.objects import Object

CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}


def document(obj: Object) -> Document:
    return Document(Place("job.yaml", 1), Path("/"), obj)


def test_a_value_comes_from_the_caller_unless_it_is_given() -> None:
    words = ("TOKEN", "EMPTY=", "PAIR=a=b", "TOKEN2=given")
    found = read_variables(words, {"TOKEN": "sesame", "TOKEN2": "not used"})
    assert found == {"TOKEN": "sesame", "EMPTY": "", "PAIR": "a=b", "TOKEN2": "given"}


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("ABSENT", r"--env ABSENT: the variable is not set here: export it, or write --env ABSENT=VALUE"),
        ("=secret", r"--env: write NAME or NAME=VALUE"),
        ("1ST=secret", r"--env: write NAME or NAME=VALUE"),
    ],
)
def test_an_error_names_the_variable_and_never_its_value(word: str, message: str) -> None:
    with pytest.raises(CommandError, match=message) as caught:
        read_variables([word], {})
    assert "secret" not in caught.value.message


def test_a_value_that_is_not_text_keeps_its_bytes() -> None:
    [made] = with_variables([document(shell_job("digits", "true"))], {"KEY": os.fsdecode(b"a\xff")})
    assert base64.b64decode(made.owned[0].object["data"]["KEY"]) == b"a\xff"


def test_every_training_container_refers_to_the_secret() -> None:
    job = shell_job("digits", "true", "true")
    master = job["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    master["containers"][0]["env"] = [{"name": "KEPT", "value": "1"}, {"name": "TOKEN", "value": "of the manifest"}]
    master["containers"].append({"name": "sidecar", "image": "i"})

    config, made = with_variables([document(CONFIG), document(job)], {"TOKEN": "sesame"})

    assert config.owned == ()
    [secret] = made.owned
    assert secret.object["metadata"] == {"name": "digits-env", "labels": {"trainwright.dev/job": "digits"}}
    assert base64.b64decode(secret.object["data"]["TOKEN"]) == b"sesame"
    reference = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "digits-env", "key": "TOKEN"}}}
    roles = made.object["spec"]["pytorchReplicaSpecs"]
    assert roles["Master"]["template"]["spec"]["containers"][0]["env"] == [{"name": "KEPT", "value": "1"}, reference]
    assert "env" not in roles["Master"]["template"]["spec"]["containers"][1]
    assert roles["Worker"]["template"]["spec"]["containers"][0]["env"] == [reference]
    assert "env" not in job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_jobs_of_every_kind_get_the_variables(kind: Kind) -> None:
    job = shell_job_of(kind, "any", {"Worker": (1, "true")})
    [made] = with_variables([document(job)], {"TOKEN": "1"})
    assert "secretKeyRef" in str(made.object)


def test_a_generated_name_gets_a_secret_of_its_own() -> None:
    job = shell_job("x", "true")
    job["metadata"] = {"generateName": "many-"}
    first, second = (with_variables([document(job)], {"A": "1"})[0].owned[0].name for _ in range(2))
    assert first.startswith("many-env-")
    assert first != second


def test_malformed_jobs_are_left_to_validation_and_others_are_refused() -> None:
    broken: Object = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "b"}, "spec": []}
    [made] = with_variables([document(broken)], {"A": "1"})
    assert made.object == broken
    with pytest.raises(CommandError, match="--env is for jobs: the manifests contain none"):
        with_variables([document(CONFIG)], {"A": "1"})
