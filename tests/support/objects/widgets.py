"""A CRD that uses every feature that the embedded server supports, and how to install it on any server."""

from typing import Any

from tests.support.cluster.raw_api import RawApi
from tests.support.waiting import eventually

GROUP = "apis/example.com/v1"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

_SPEC: dict[str, Any] = {
    "type": "object",
    "required": ["color"],
    "properties": {
        "color": {"type": "string", "enum": ["red", "blue"]},
        "size": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 10, "default": 3},
        "title": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 5},
        "port": {"x-kubernetes-int-or-string": True},
        "when": {"type": "string", "format": "date-time"},
        "maybe": {"type": "string", "nullable": True},
        "ratio": {"type": "number"},
        "lit": {"type": "boolean"},
        "parts": {
            "type": "array",
            "minItems": 1,
            "maxItems": 2,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["id"],
            "items": {
                "type": "object",
                "required": ["id"],
                "properties": {"id": {"type": "string"}, "count": {"type": "integer", "default": 7}},
            },
        },
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "labels": {
            "type": "object",
            "additionalProperties": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "embedded": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
        "either": {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
    },
}


def definition(plural: str = "widgets", *, rules: bool = False) -> dict[str, Any]:
    """The CRD; with `rules` one field is immutable."""
    kind = plural.removesuffix("s").capitalize()
    spec = dict(_SPEC)
    if rules:
        frozen = {
            "type": "string",
            "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is immutable"}],
        }
        spec["properties"] = _SPEC["properties"] | {"frozen": frozen}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "shortNames": [plural[:2]], "categories": ["all"]},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "additionalPrinterColumns": [
                        {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"},
                        {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    ],
                    "subresources": {
                        "status": {},
                        "scale": {
                            "specReplicasPath": ".spec.size",
                            "statusReplicasPath": ".status.size",
                            "labelSelectorPath": ".status.selector",
                        },
                    },
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "required": ["spec"],
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "kind": {"type": "string"},
                                "metadata": {"type": "object"},
                                "spec": spec,
                                "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            },
                        }
                    },
                }
            ],
        },
    }


def widget(name: str = "w", kind: str = "Widget", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": name}, "spec": {"color": "red"} | spec}


async def install(api: RawApi, crd: dict[str, Any]) -> str:
    """Creates the CRD unless it exists, waits until it is served, and returns the path of its objects."""
    reply = await api.post(DEFINITIONS, crd)
    assert reply.code in {201, 409}, reply.body
    path = api.path(crd["spec"]["names"]["plural"], group=GROUP)
    # The real server serves it with a delay; writes work last.
    probe = widget("probe", crd["spec"]["names"]["kind"])
    await eventually(lambda: api.post(f"{path}?dryRun=All", probe), lambda reply: reply.code == 201)
    return path
