"""CustomResourceDefinitions, rendered from the types that decode jobs, so that schema and decoding always agree.

The spec of a pod template is open: the schema declares only fields that the operator reads, and preserves all others.
That keeps a CRD small enough for client-side `kubectl apply`, whose limit is 256 KiB. Everything else is closed: strict
validation rejects unknown fields. The rules of upstream's webhook are not in the schema, because its error messages
would differ from upstream's.
"""

from collections.abc import Mapping

from trainwright.api.kinds import GROUP, VERSION, Kind
from trainwright.api.schema import structural_schema
from trainwright.api.types import EarlierRunPolicy, JobStatus, ReplicaSpec, RunPolicy, with_default
from trainwright.objects import Object

_COLUMNS: dict[str, Object] = {
    "State": {"name": "State", "type": "string", "jsonPath": ".status.conditions[-1:].type"},
    "Age": {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
}
_WIDE_COLUMNS: list[Object] = [
    {"name": "Started", "type": "date", "jsonPath": ".status.startTime", "priority": 1},
    {"name": "Finished", "type": "date", "jsonPath": ".status.completionTime", "priority": 1},
    {"name": "Message", "type": "string", "jsonPath": ".status.conditions[-1:].message", "priority": 1},
]

_OPEN = "x-kubernetes-preserve-unknown-fields"

_PORT: Object = {
    "type": "object",
    "description": "A port of the container. The Service of the pod has it too.",
    _OPEN: True,
    "required": ["containerPort"],
    "properties": {
        "name": {
            "type": "string",
            "description": "Name of the port. The kind's default port is added if no port has its name.",
        },
        "containerPort": {"type": "integer", "format": "int32", "description": "Port number."},
        "protocol": {"type": "string", "description": "Protocol: TCP, UDP or SCTP. Defaults to TCP."},
    },
}
_CONTAINER: Object = {
    "type": "object",
    "description": "A container of the pod.",
    _OPEN: True,
    "required": ["name"],
    "properties": {
        "name": {
            "type": "string",
            "description": "Name of the container. One must have the name that the kind requires.",
        },
        "image": {"type": "string", "description": "Container image."},
        "ports": {"type": "array", "description": "Ports to expose.", "items": _PORT},
    },
}
_TEMPLATE_METADATA: Object = {
    "type": "object",
    "description": "Labels, annotations and finalizers of the pods.",
    "properties": {
        "labels": {"type": "object", "description": "Labels.", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "description": "Annotations.", "additionalProperties": {"type": "string"}},
        "finalizers": {"type": "array", "description": "Finalizers.", "items": {"type": "string"}},
        "name": {"type": "string", "description": "Has no effect: pods are named JOB-ROLE-INDEX."},
        "namespace": {"type": "string", "description": "Has no effect: pods are created in the job's namespace."},
    },
}
_TEMPLATE: Object = {
    "type": "object",
    "properties": {
        "metadata": _TEMPLATE_METADATA,
        "spec": {
            "type": "object",
            "description": "Spec of the pods. restartPolicy is overwritten by that of the role.",
            _OPEN: True,
            "required": ["containers"],
            "properties": {
                "containers": {"type": "array", "description": "Containers of the pods.", "items": _CONTAINER},
            },
        },
    },
}


def render_crd(kind: Kind) -> Object:
    version: Object = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [*(_COLUMNS[column] for column in kind.columns), *_WIDE_COLUMNS],
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
    run_policy["default"] = {}  # not in upstream's CRD; its SDK cannot read a job without runPolicy
    run_policy["properties"]["suspend"]["default"] = False
    replicas = {
        "type": "object",
        "description": f"Replicas by role: {', '.join(role.name for role in kind.roles)}.",
        "minProperties": 1,
        "additionalProperties": _replica_schema(kind),
    }
    spec: Object = {
        "type": "object",
        "description": "Desired state of the job.",
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
        "description": f"{kind.name} runs a distributed training job as a group of pods.",
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
            "kind": {"type": "string", "description": kind.name},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": structural_schema(JobStatus),
        },
    }


def _replica_schema(kind: Kind) -> Object:
    schema = structural_schema(ReplicaSpec)
    fields = schema["properties"]
    fields["template"] = {**_TEMPLATE, "description": _template_description(kind)}
    defaults = {
        "replicas": {role.name: str(role.default_replicas) for role in kind.roles},
        "restartPolicy": {role.name: kind.restart_policy_of(role) for role in kind.roles},
    }
    for field, by_role in defaults.items():
        fields[field]["description"] = with_default(fields[field]["description"], _by_role(by_role))
    # Otherwise `kubectl scale` could add a role that has only `replicas` to a job without that role.
    schema["required"] = ["template"]
    return schema


def _template_description(kind: Kind) -> str:
    named = {role.name: kind.container_of(role) for role in kind.roles}
    if any(named.values()):
        main = "One container must be named " + _by_role({role: name or "anything" for role, name in named.items()})
    else:
        main = "The first container is the main one"
    description = (
        f"Template of the pods, a PodTemplateSpec. The operator adds labels and environment variables. {main}."
    )
    listening = [role.name for role in kind.roles if role.has_port]
    if not listening:
        return description
    of = "" if len(listening) == len(kind.roles) else f" of {', '.join(listening)}"
    return f"{description} That{of} gets the port {kind.port_name} ({kind.port}) unless it has a port of that name."


def _by_role(values: Mapping[str, str]) -> str:
    """`1`, or `1 (Launcher: 2)` if roles differ."""
    common, *_ = values.values()
    others = [f"{role}: {value}" for role, value in values.items() if value != common]
    return f"{common} ({', '.join(others)})" if others else common
