"""Runtime configs of pods without a cluster or a disk: pods with defaults, and what is generated from them."""

from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from trainwright.cluster.node.machine import Machine
from trainwright.cluster.node.pods.config.pod_context import PodContext
from trainwright.cluster.node.pods.config.runtime_config import RuntimeConfig, WaitingReason, generate_runtime_config
from trainwright.cluster.node.pods.node_config import NodeConfig
from trainwright.cluster.node.referenced_objects import ReferencedObjects
from trainwright.cluster.node.supervisor.pod_json import ContainerJson
from trainwright.cluster.node.supervisor.sandbox.detection import Sandbox
from trainwright.cluster.node_settings import NodeSettings
from trainwright.objects import Object

NODE = NodeConfig(
    settings=NodeSettings(python="/opt/venv/bin/python"),
    directory=Path("/node"),
    pod_network=IPv4Network("127.64.0.0/18"),
    address_mark=-1,
    sandbox=Sandbox("overlay", shared_ports="not tried"),
    machine=Machine(
        hostname="host",
        cpus=4,
        memory=8 << 30,
        disk=1 << 40,
        pods=110,
        boot_id="boot",
        machine_id="machine",
        kernel="6.1",
        os_image="Debian",
        architecture="amd64",
    ),
    user=1000,
    home="/home/me",
    shared_home=None,
    find_hidden=tuple,
    open_files=1024,
    images=Path("/images"),
)
OVERLAY = PodContext(node=NODE, address="127.64.0.7", directory="/node/pods/u", hosts_file="/node/hosts/default")


def on_node(context: PodContext, **fields: Any) -> PodContext:
    """The context on a node with these fields."""
    return replace(context, node=replace(context.node, **fields))


PLAIN = replace(
    on_node(OVERLAY, sandbox=Sandbox("plain", shared_ports="not tried")), names={"job-master-0": "127.64.0.1"}
)


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


def main(subject: Object, context: PodContext = OVERLAY, **sources: Any) -> ContainerJson:
    return run(subject, context, **sources).pod_json["containers"][0]


def waiting_reasons(subject: Object, context: PodContext = OVERLAY, **sources: Any) -> tuple[WaitingReason, ...]:
    found = generate_runtime_config(subject, context, ReferencedObjects(**sources))
    assert isinstance(found, tuple), found
    return found


def warnings(subject: Object, context: PodContext = OVERLAY) -> dict[str, str]:
    return {warning.reason: warning.message for warning in run(subject, context).warnings}


def targets(found: ContainerJson) -> dict[str, tuple[str, bool]]:
    """Without that of the termination message, which every container has."""
    mounts = {mount["target"]: (mount["source"], mount["readOnly"]) for mount in found["mounts"]}
    return {target: mount for target, mount in mounts.items() if target != "/dev/termination-log"}
