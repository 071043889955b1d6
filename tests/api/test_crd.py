"""The rendered CRD of a kind."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.objects.flutes import FLUTE
from tests.support.objects.orchestra import ORCHESTRA
from trainwright.api.crd import render_crd
from trainwright.api.kinds import KINDS, PYTORCH, Kind
from trainwright.objects import Object


def version(kind: Kind = PYTORCH) -> Object:
    (only,) = render_crd(kind)["spec"]["versions"]
    found: Object = only
    return found


def schema(*path: str) -> Object:
    part: Object = version()["schema"]["openAPIV3Schema"]
    for name in path:
        part = part["properties"][name]
    return part


def walk(part: Any) -> Iterator[Object]:
    if isinstance(part, dict):
        yield part
        for value in part.values():
            yield from walk(value)


def properties(part: Object, path: str) -> Iterator[tuple[str, Object]]:
    """All fields below, with their paths."""
    for name, field in (part.get("properties") or {}).items():
        yield f"{path}.{name}", field
        yield from properties(field, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in part:
            yield from properties(part[key], f"{path}[]")


def test_names_and_subresources_are_upstreams() -> None:
    crd = render_crd(PYTORCH)
    assert crd["metadata"]["name"] == "pytorchjobs.kubeflow.org"
    assert crd["spec"]["names"] == {
        "kind": "PyTorchJob",
        "listKind": "PyTorchJobList",
        "plural": "pytorchjobs",
        "singular": "pytorchjob",
    }
    assert version()["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas",
            "statusReplicasPath": ".status.replicaStatuses.Worker.active",
            "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
        },
    }


def test_default_columns_are_state_and_age_and_wide_ones_have_priority_1() -> None:
    usual, wide = version()["additionalPrinterColumns"][:2], version()["additionalPrinterColumns"][2:]
    assert usual == [
        {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]
    assert [(column["name"], column["priority"]) for column in wide] == [
        ("Started", 1),
        ("Finished", 1),
        ("Message", 1),
    ]


def test_a_kind_without_a_scaled_role_has_no_scale_and_its_own_order_of_columns() -> None:
    assert version(FLUTE)["subresources"] == {"status": {}}
    assert [column["name"] for column in version(FLUTE)["additionalPrinterColumns"]][:2] == ["Age", "State"]


def test_suspend_defaults_to_false() -> None:
    assert schema("spec", "runPolicy")["default"] == {}
    assert schema("spec", "runPolicy", "suspend")["default"] is False


def test_only_the_replicas_and_their_templates_are_required() -> None:
    assert schema("spec")["required"] == ["pytorchReplicaSpecs"]
    assert schema("spec", "pytorchReplicaSpecs")["additionalProperties"]["required"] == ["template"]
    assert "required" not in schema("spec", "runPolicy")


def test_the_queue_cannot_be_changed() -> None:
    assert schema("spec", "runPolicy", "schedulingPolicy", "queue")["x-kubernetes-validations"] == [
        {"rule": "self == oldSelf", "message": "spec.runPolicy.schedulingPolicy.queue is immutable"}
    ]


def test_the_manager_cannot_be_changed() -> None:
    assert schema("spec", "runPolicy", "managedBy")["x-kubernetes-validations"] == [
        {"rule": "self == oldSelf", "message": "field is immutable"}
    ]


def test_pod_spec_preserves_unknown_fields_but_containers_need_a_name() -> None:
    replica = schema("spec", "pytorchReplicaSpecs")["additionalProperties"]
    pod = replica["properties"]["template"]["properties"]["spec"]
    assert pod["x-kubernetes-preserve-unknown-fields"] is True
    assert pod["required"] == ["containers"]
    assert pod["properties"]["containers"]["items"]["required"] == ["name"]


def test_additional_status_fields_are_declared() -> None:
    fields = schema("status")["properties"]
    assert {"restarts", "replacedPods", "completedIndexes"} <= fields.keys()
    assert fields["restarts"]["additionalProperties"] == {"type": "integer", "format": "int32"}
    assert (fields["startTime"]["type"], fields["startTime"]["format"]) == ("string", "date-time")


def test_the_kinds_own_fields_are_declared() -> None:
    assert schema("spec", "elasticPolicy", "rdzvConf")["items"]["properties"].keys() == {"key", "value"}
    assert schema("spec", "nprocPerNode")["type"] == "string"


def test_every_field_is_described() -> None:
    for kind in (*KINDS.values(), FLUTE):
        root = version(kind)["schema"]["openAPIV3Schema"]
        undescribed = [path for path, field in properties(root, "") if not field.get("description", "").strip()]
        assert undescribed == [".metadata"]  # Kubernetes' own


@pytest.mark.parametrize(
    ("kind", "policy", "main"),
    [
        (
            PYTORCH,
            "Defaults to OnFailure.",
            "One container must be named pytorch. That gets the port pytorchjob-port (23456)",
        ),
        (
            ORCHESTRA,
            "Defaults to Never (Audience: OnFailure).",
            "named conductor (Violin: orchestra, Audience: orchestra). That of Violin gets the port strings (4711)",
        ),
        (
            replace(FLUTE, container=""),
            "Defaults to Never.",
            "The first container is the main one. That gets the port flute-port (4000)",
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_defaults_of_the_kind_and_its_main_container_are_described(kind: Kind, policy: str, main: str) -> None:
    root = version(kind)["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields = root[kind.replicas_field]["additionalProperties"]["properties"]
    assert fields["replicas"]["description"] == "Number of pods. Defaults to 1."
    assert fields["restartPolicy"]["description"].endswith(policy)
    assert fields["template"]["description"].endswith(f"{main} unless it has a port of that name.")


def test_only_the_spec_of_pods_preserves_unknown_fields() -> None:
    root = version()["schema"]["openAPIV3Schema"]
    opened = {path for path, field in properties(root, "") if field.get("x-kubernetes-preserve-unknown-fields")}
    assert opened
    assert all(path.startswith(".spec.pytorchReplicaSpecs[].template.spec") for path in opened)


def test_earlier_fields_are_declared_and_described_as_deprecated() -> None:
    for field in ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"):
        here, there = schema("spec", field), schema("spec", "runPolicy", field)
        assert here["description"] == f"Deprecated: use spec.runPolicy.{field}, which takes precedence."
        assert {**here, "description": ""} == {**there, "description": ""}


def test_schemas_are_structural_and_small() -> None:
    for kind in KINDS.values():
        rendered = render_crd(kind)
        assert len(json.dumps(rendered)) < 32 * 1024
        for part in walk(version(kind)["schema"]):
            assert not {"$ref", "title"} & part.keys()
            assert not {-(2**31), 2**31 - 1, -(2**63), 2**63 - 1} & {part.get("minimum"), part.get("maximum")}
            if "anyOf" in part:
                assert part["x-kubernetes-int-or-string"] is True
