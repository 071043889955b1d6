"""What a server could not decode, told in the manifest's own words."""

import pytest

from trainwright.cli.manifests.decode_errors import misfit
from trainwright.objects import Object


def pod(**container: object) -> Object:
    return {"spec": {"containers": [{"name": "beside"}, {"name": "pytorch", **container}]}}


def refused(given: str, field: str, wanted: str) -> str:
    return (
        'Pod in version "v1" cannot be handled as a Pod: '
        f"json: cannot unmarshal {given} into Go struct field {field} of type {wanted}"
    )


@pytest.mark.parametrize(
    ("obj", "message", "words"),
    [
        (
            pod(env=[{"name": "A", "value": "x"}, {"name": "B", "value": 1}]),
            refused("number", "EnvVar.spec.containers.env.value", "string"),
            "spec.containers[1].env[1].value: must be text, not 1: put it in quotes",
        ),
        (
            pod(command=["true", True]),
            refused("bool", "Container.spec.containers.command", "string"),
            "spec.containers[1].command[1]: must be text, not true: put it in quotes",
        ),
        (
            pod(command="python train.py"),
            refused("string", "Container.spec.containers.command", "[]string"),
            'spec.containers[1].command: must be a list, not "python train.py"',
        ),
        (
            pod(tty="yes"),
            refused("string", "Container.spec.containers.tty", "bool"),
            'spec.containers[1].tty: must be true or false, not "yes"',
        ),
        (
            pod(ports=[{"containerPort": "80"}]),
            refused("string", "ContainerPort.spec.containers.ports.containerPort", "int32"),
            'spec.containers[1].ports[0].containerPort: must be a whole number, not "80"',
        ),
        (
            {"data": {"lr": "0.1", "epochs": 3}},
            refused("number", "ConfigMap.data", "string"),
            "data[epochs]: must be text, not 3: put it in quotes",
        ),
        (
            pod(resources=["gpu"]),
            refused("array", "Container.spec.containers.resources", "v1.ResourceRequirements"),
            'spec.containers[1].resources: must be a mapping, not ["gpu"]',
        ),
        (
            pod(),
            refused("number", "Container.spec.containers.elsewhere", "string"),
            "spec.containers.elsewhere: must be text, not a number",
        ),
    ],
)
def test_the_field_the_value_and_the_remedy_are_named(obj: Object, message: str, words: str) -> None:
    assert misfit(message, obj) == words


def test_other_complaints_are_left_as_they_are() -> None:
    assert misfit("quantities must match the regular expression", pod()) is None
