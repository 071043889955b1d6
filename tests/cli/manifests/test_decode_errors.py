"""Decoding errors of the API server, translated into the manifest's terms."""

import pytest

from trainwright.cli.manifests.decode_errors import explain_type_error
from trainwright.objects import Object


def pod(**container: object) -> Object:
    return {"spec": {"containers": [{"name": "beside"}, {"name": "pytorch", **container}]}}


def refused(given: str, field: str, wanted: str) -> str:
    return (
        'Pod in version "v1" cannot be handled as a Pod: '
        f"json: cannot unmarshal {given} into Go struct field {field} of type {wanted}"
    )


QUANTITY = (
    'Pod in version "v1" cannot be handled as a Pod: '
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)


@pytest.mark.parametrize(
    ("obj", "message", "words"),
    [
        (
            pod(env=[{"name": "A", "value": "x"}, {"name": "B", "value": 1}]),
            refused("number", "EnvVar.spec.containers.env.value", "string"),
            "spec.containers[1].env[1].value: must be a string, not 1: put it in quotes",
        ),
        (
            pod(command=["true", True]),
            refused("bool", "Container.spec.containers.command", "string"),
            "spec.containers[1].command[1]: must be a string, not true: put it in quotes",
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
            'spec.containers[1].ports[0].containerPort: must be an integer, not "80"',
        ),
        (
            {"data": {"lr": "0.1", "epochs": 3}},
            refused("number", "ConfigMap.data", "string"),
            "data[epochs]: must be a string, not 3: put it in quotes",
        ),
        (
            pod(resources=["gpu"]),
            refused("array", "Container.spec.containers.resources", "v1.ResourceRequirements"),
            'spec.containers[1].resources: must be an object, not ["gpu"]',
        ),
        (
            pod(),
            refused("number", "Container.spec.containers.elsewhere", "string"),
            "spec.containers.elsewhere: must be a string, not a number",
        ),
        (
            pod(resources={"requests": {"cpu": "500m"}, "limits": {"cpu": 2, "memory": "2GB"}}),
            QUANTITY,
            (
                "spec.containers[1].resources.limits[memory]: '2GB' is not a quantity: "
                "write a number and a unit such as 500m, 2, 1.5Gi or 10G; Gi, not GB"
            ),
        ),
        (
            {"spec": {"volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "many"}}]}},
            "unable to parse quantity's suffix",
            (
                "spec.volumes[0].emptyDir.sizeLimit: 'many' is not a quantity: "
                "write a number and a unit such as 500m, 2, 1.5Gi or 10G"
            ),
        ),
    ],
)
def test_field_value_and_fix_are_named(obj: Object, message: str, words: str) -> None:
    assert explain_type_error(message, obj) == words


def test_other_messages_are_not_translated() -> None:
    assert explain_type_error(QUANTITY, pod()) is None  # in a field that is not known here
    assert explain_type_error("the server is busy", pod()) is None
