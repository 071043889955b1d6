"""Pods of every shape that a node can run: what an upgrade must go on with. `golden_pods` records their files."""

from dataclasses import dataclass, field
from typing import Any

from trainwright.objects import Object
from trainwright.objects.node_annotations import HOST_IMAGE

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "${OWNER_UID}", "controller": True}
SHARED = "${SHARED}"
"""A directory of the machine, in which the tests and the pods write."""
RUNS = "trap 'echo stopped; exit 0' TERM; echo running; while :; do sleep 0.05; done"
"""Until it is stopped."""


@dataclass(frozen=True, kw_only=True)
class PodShape:
    spec: Object
    phase: str = "Running"
    """Which the pod reaches; one that is Running has to be stopped."""
    levels: tuple[str, ...] = ("overlay", "plain")
    needs_root: bool = False
    metadata: Object = field(default_factory=dict)
    ready: bool = True
    """Whether all its containers become ready."""


def _container(script: str, name: str = "main", **fields: Any) -> Object:
    return {"name": name, "image": HOST_IMAGE, "command": ["sh", "-c", script], **fields}


def _shape(*containers: Object, **fields: Any) -> PodShape:
    named = {name: fields.pop(name) for name in tuple(fields) if name in PodShape.__dataclass_fields__}
    owner = {"labels": {"app": "digits"}, "ownerReferences": [OWNER]}
    metadata = {"annotations": {"node.trainwright.dev/directory": SHARED}, **owner, **named.pop("metadata", {})}
    return PodShape(
        spec={"restartPolicy": "Never", "containers": list(containers), **fields}, metadata=metadata, **named
    )


_SERVER = "python -m http.server 8123"
_MOUNTS = [
    {"name": "empty", "mountPath": "/mnt/empty"},
    {"name": "empty", "mountPath": "/mnt/below", "subPath": "a/b"},
    {"name": "empty", "mountPath": "/mnt/expanded", "subPathExpr": "$(WORD)"},
    {"name": "memory", "mountPath": "/mnt/memory"},
    {"name": "host", "mountPath": "/mnt/host", "readOnly": True},
    {"name": "config", "mountPath": "/mnt/config"},
    {"name": "secret", "mountPath": "/mnt/secret"},
    {"name": "fields", "mountPath": "/mnt/fields"},
    {"name": "projected", "mountPath": "/mnt/projected"},
    {"name": "claim", "mountPath": "/mnt/claim"},
    {"name": "nfs", "mountPath": "/mnt/nfs"},
]
_NAME = {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}
_VOLUMES = [
    {"name": "empty", "emptyDir": {}},
    {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    {"name": "host", "hostPath": {"path": f"{SHARED}/host", "type": "DirectoryOrCreate"}},
    {"name": "config", "configMap": {"name": "settings"}},
    {"name": "secret", "secret": {"secretName": "password", "defaultMode": 0o400}},
    {"name": "fields", "downwardAPI": {"items": [_NAME]}},
    {"name": "projected", "projected": {"sources": [{"configMap": {"name": "settings"}}]}},
    {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}},
    {"name": "nfs", "nfs": {"server": "filer", "path": "/export"}},
]
_READS_VOLUMES = (
    "cat /mnt/config/key /mnt/secret/key /mnt/fields/name /mnt/projected/key; echo; "
    "for file in /mnt/empty/file /mnt/below/file /mnt/expanded/file /mnt/memory/file /mnt/claim/file /mnt/nfs/file; "
    "do echo written > $file; done 2>/dev/null; "
)

SHAPES = {
    "one-container": _shape(_container(RUNS)),
    "several-containers": _shape(
        _container(RUNS),
        _container(RUNS, "second"),
        initContainers=[
            _container("echo prepared", "first-init"),
            _container(RUNS, "sidecar", restartPolicy="Always"),
            _container("echo prepared too", "second-init"),
        ],
    ),
    "probes-and-hooks": _shape(
        _container(
            f"{_SERVER} 2>&1",
            ports=[{"name": "http", "containerPort": 8123}],
            startupProbe={"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 1, "failureThreshold": 60},
            livenessProbe={"tcpSocket": {"port": 8123}, "terminationGracePeriodSeconds": 5},
            readinessProbe={"exec": {"command": ["true"]}, "periodSeconds": 1},
            lifecycle={
                "postStart": {"exec": {"command": ["sh", "-c", f"echo post > {SHARED}/hooks"]}},
                "preStop": {"exec": {"command": ["sh", "-c", f"echo pre >> {SHARED}/hooks"]}},
            },
        ),
        _container(
            RUNS,
            "unready",
            readinessProbe={"grpc": {"port": 8124, "service": "s"}, "periodSeconds": 1, "failureThreshold": 1},
            livenessProbe={"httpGet": {"path": "x", "port": 8123, "httpHeaders": [{"name": "A", "value": "b"}]}},
            lifecycle={"preStop": {"sleep": {"seconds": 1}}},
        ),
        ready=False,
        terminationGracePeriodSeconds=7,
    ),
    "volumes": _shape(
        _container(_READS_VOLUMES + RUNS, volumeMounts=_MOUNTS, env=[{"name": "WORD", "value": "word"}]),
        volumes=_VOLUMES,
    ),
    "image": _shape(
        {"name": "main", "image": "machine", "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", RUNS]},
        levels=("overlay",),
    ),
    "layers-over-host-files": _shape(
        {
            "name": "main",
            "image": "over:1",
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", f"cat /srv/own/file; {RUNS}"],
        },
        levels=("overlay",),
    ),
    "limits": _shape(
        _container(RUNS, resources={"limits": {"cpu": "500m", "memory": "256Mi"}, "requests": {"cpu": "100m"}})
    ),
    "devices": _shape(
        _container(f"echo $CUDA_VISIBLE_DEVICES; {RUNS}", resources={"limits": {"nvidia.com/gpu": 1}}),
    ),
    "terminal": _shape(_container(RUNS, stdin=True, tty=True)),
    "stdin": _shape(_container(f"read line; echo got $line; {RUNS}", stdin=True, stdinOnce=True)),
    "security-context": _shape(
        _container(
            f"id -u; id -g; {RUNS}",
            securityContext={
                "runAsUser": 1234,
                "runAsGroup": 2345,
                "readOnlyRootFilesystem": True,
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        ),
        securityContext={"fsGroup": 3456, "supplementalGroups": [4567]},
        metadata={"annotations": {}},
        needs_root=True,
    ),
    "privileged": _shape(_container(RUNS, securityContext={"privileged": True}), needs_root=True),
    "host-network": _shape(_container(RUNS), hostNetwork=True),
    "host-port": _shape(_container(RUNS, ports=[{"containerPort": 8125, "hostPort": 28125}])),
    "deadline": _shape(_container(RUNS), activeDeadlineSeconds=86400, hostname="other-name"),
    "succeeds": _shape(
        _container(
            "echo one; echo two >&2; echo kept > /var/tmp/kept; echo in-volume > /mnt/v/file",
            volumeMounts=[{"name": "v", "mountPath": "/mnt/v"}],
        ),
        initContainers=[_container("echo prepared", "init")],
        volumes=[{"name": "v", "emptyDir": {}}],
        phase="Succeeded",
    ),
    "fails-once": _shape(
        _container(f"test -e {SHARED}/tried && echo again && exit 0; touch {SHARED}/tried; echo first; exit 3"),
        restartPolicy="OnFailure",
        phase="Succeeded",
    ),
    "termination-message": _shape(
        _container("echo because > /tmp/why; exit 4", terminationMessagePath="/tmp/why"),
        _container("echo last words; exit 5", "logged", terminationMessagePolicy="FallbackToLogsOnError"),
        phase="Failed",
    ),
    "always": _shape(_container("echo ended; exit 0"), restartPolicy="Always", ready=False),
}
