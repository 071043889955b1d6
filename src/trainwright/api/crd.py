"""CustomResourceDefinitions, rendered from the types that read the jobs: what we accept and what we declare are one.

The spec of a pod stays open: only the parts that we read are declared, the rest passes through whatever Kubernetes adds
to it. That keeps a CRD small enough for plain `kubectl apply`, which refuses objects over 256 KiB. Everything else is
closed: what is not declared is refused by a strict `kubectl apply`. Rules of upstream's webhook are left to the webhook
and to the operator, because the schema would refuse in other words.
"""

from trainwright.api.kinds import GROUP, VERSION, Kind
from trainwright.api.schema import structural_schema
from trainwright.api.types import EarlierRunPolicy, JobStatus, ReplicaSpec, RunPolicy
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
    "description": "A port of the container. Its Service has it too.",
    _OPEN: True,
    "required": ["containerPort"],
    "properties": {
        "name": {"type": "string", "description": "Its name; the kind's own is added if no port has it."},
        "containerPort": {"type": "integer", "format": "int32", "description": "The number."},
        "protocol": {"type": "string", "description": "TCP (default), UDP or SCTP."},
    },
}
_CONTAINER: Object = {
    "type": "object",
    "description": "A container as in a pod.",
    _OPEN: True,
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "description": "Its name; one container must have the name that the kind expects."},
        "image": {"type": "string", "description": "What it runs."},
        "ports": {"type": "array", "description": "Ports that it listens on.", "items": _PORT},
    },
}
_TEMPLATE_METADATA: Object = {
    "type": "object",
    "description": "Labels, annotations and finalizers of the pods.",
    "properties": {
        "labels": {"type": "object", "description": "Labels.", "additionalProperties": {"type": "string"}},
        "annotations": {"type": "object", "description": "Annotations.", "additionalProperties": {"type": "string"}},
        "finalizers": {"type": "array", "description": "Finalizers.", "items": {"type": "string"}},
        "name": {"type": "string", "description": "Has no effect: pods are called JOB-ROLE-INDEX."},
        "namespace": {"type": "string", "description": "Has no effect: pods are in the job's namespace."},
    },
}
_TEMPLATE: Object = {
    "type": "object",
    "description": "The pod to create, any PodTemplateSpec. It is passed on as it is, with the environment added.",
    "properties": {
        "metadata": _TEMPLATE_METADATA,
        "spec": {
            "type": "object",
            "description": "What the pods run; restartPolicy is taken from the role instead.",
            _OPEN: True,
            "required": ["containers"],
            "properties": {
                "containers": {"type": "array", "description": "Its containers.", "items": _CONTAINER},
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
    run_policy["default"] = {}  # upstream has none, and its SDK then cannot read the job
    run_policy["properties"]["suspend"]["default"] = False
    roles = " and ".join(role.name for role in kind.roles)
    replicas = {
        "type": "object",
        "description": f"The pods of each role. {kind.name} has {roles}.",
        "minProperties": 1,
        "additionalProperties": _replica_schema(),
    }
    spec: Object = {
        "type": "object",
        "description": "What to train, with how many pods, and under which rules.",
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
        "description": f"A {kind.name} trains on a group of pods that find each other and end together.",
        "properties": {
            "apiVersion": {"type": "string", "description": f"{GROUP}/{VERSION}"},
            "kind": {"type": "string", "description": kind.name},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": structural_schema(JobStatus),
        },
    }


def _replica_schema() -> Object:
    schema = structural_schema(ReplicaSpec)
    schema["properties"]["template"] = _TEMPLATE
    # `kubectl scale` would otherwise add a role of nothing but a number to a job that has none of that name.
    schema["required"] = ["template"]
    return schema
