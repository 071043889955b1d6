"""Runtime configs of pods without a cluster or a disk: pods with defaults, and what is generated from them."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

from trainwright.cluster.node.pods.config.pod_context import PodContext
from trainwright.cluster.node.pods.config.runtime_config import RuntimeConfig, WaitingReason, generate_runtime_config
from trainwright.cluster.node.referenced_objects import ReferencedObjects
from trainwright.objects import Object

OVERLAY = PodContext(
    node_name="local",
    host_address="127.0.0.1",
    address="127.64.0.7",
    directory="/node/pods/u",
    hosts_file="/node/hosts/default",
    level="overlay",
    python="/opt/venv/bin/python",
    home="/home/me",
    allocatable={"cpu": Fraction(4), "memory": Fraction(8 << 30)},
)
PLAIN = replace(OVERLAY, level="plain", allocatable={}, names={"job-master-0": "127.64.0.1"})


def pod(*containers: Object, annotations: dict[str, str] | None = None, **spec: Any) -> Object:
    return {
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": "u",
            "labels": {"app": "digits"},
            "annotations": {f"node.trainwright.dev/{key}": value for key, value in (annotations or {}).items()},
        },
        "spec": {"containers": list(containers) or [container()], **spec},
    }


def container(**fields: Any) -> Object:
    return {"name": "main", "image": "trainwright/host", "command": ["python", "train.py"], **fields}


def run(subject: Object, context: PodContext = OVERLAY, **sources: Any) -> RuntimeConfig:
    found = generate_runtime_config(subject, context, ReferencedObjects(**sources))
    assert isinstance(found, RuntimeConfig), found
    return found


def main(subject: Object, context: PodContext = OVERLAY, **sources: Any) -> dict[str, Any]:
    first: dict[str, Any] = run(subject, context, **sources).pod_json["containers"][0]
    return first


def waiting_reasons(subject: Object, context: PodContext = OVERLAY, **sources: Any) -> tuple[WaitingReason, ...]:
    found = generate_runtime_config(subject, context, ReferencedObjects(**sources))
    assert isinstance(found, tuple), found
    return found


def warnings(subject: Object, context: PodContext = OVERLAY) -> dict[str, str]:
    return {warning.reason: warning.message for warning in run(subject, context).warnings}


def targets(found: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    """Without that of the termination message, which every container has."""
    mounts = {mount["target"]: (mount["source"], mount["readOnly"]) for mount in found["mounts"]}
    return {target: mount for target, mount in mounts.items() if target != "/dev/termination-log"}
