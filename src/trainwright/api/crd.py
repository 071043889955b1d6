"""CustomResourceDefinitions, rendered from the types that read the jobs: what we accept and what we declare are one.

Pod templates stay open: only the parts that we read are declared, the rest passes through whatever Kubernetes adds to
it. That keeps a CRD small enough for plain `kubectl apply`, which refuses objects over 256 KiB.
"""

from trainwright.api.kinds import GROUP, VERSION, Kind
from trainwright.api.legacy import EarlierRunPolicy
from trainwright.api.schema import structural_schema
from trainwright.api.types import JobStatus, ReplicaSpec, RunPolicy
from trainwright.objects import Object

_COLUMNS: dict[str, Object] = {
    "State": {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"},
    "Age": {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
}

_OPEN = "x-kubernetes-preserve-unknown-fields"

_TEMPLATE: Object = {
    "type": "object",
    "description": "The pod to create, any PodTemplateSpec. It is passed on as it is, with the environment added.",
    _OPEN: True,
    "properties": {
        "metadata": {"type": "object", _OPEN: True},
        "spec": {
            "type": "object",
            _OPEN: True,
            "required": ["containers"],
            "properties": {
                "containers": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        _OPEN: True,
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "image": {"type": "string"},
                            "ports": {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    _OPEN: True,
                                    "required": ["containerPort"],
                                    "properties": {
                                        "name": {"type": "string"},
                                        "containerPort": {"type": "integer", "format": "int32"},
                                        "protocol": {"type": "string"},
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


def render_crd(kind: Kind) -> Object:
    version: Object = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_COLUMNS[column] for column in kind.columns],
        "schema": {"openAPIV3Schema": _schema(kind)},
        "subresources": {"status": {}},
    }
    if kind.scaled_role is not None:
        version["subresources"]["scale"] = {
            "specReplicasPath": f".spec.{kind.replicas_field}.{kind.scaled_role}.replicas",
            "statusReplicasPath": f".status.replicaStatuses.{kind.scaled_role}.active",
            "labelSelectorPath": f".status.replicaStatuses.{kind.scaled_role}.selector",
        }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.singular,
            },
            "versions": [version],
        },
    }


def _schema(kind: Kind) -> Object:
    run_policy = structural_schema(RunPolicy)
    run_policy["default"] = {}  # upstream has none, and its SDK then cannot read the job
    run_policy["properties"]["suspend"]["default"] = False
    replicas = {"type": "object", "additionalProperties": _replica_schema()}
    spec: Object = {
        "type": "object",
        "properties": {
            "runPolicy": run_policy,
            **structural_schema(EarlierRunPolicy)["properties"],
            **structural_schema(kind.fields)["properties"],
            kind.replicas_field: replicas,
        },
        "required": [kind.replicas_field],
    }
    return {
        "type": "object",
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": structural_schema(JobStatus),
        },
    }


def _replica_schema() -> Object:
    schema = structural_schema(ReplicaSpec)
    schema["properties"]["template"] = _TEMPLATE
    return schema
