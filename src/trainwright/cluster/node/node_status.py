"""The Node object of this machine: capacity, conditions, annotations and Lease. Reads the machine, writes nothing."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from pathlib import Path

from trainwright import __version__
from trainwright.cluster.node.descriptors import most_pods
from trainwright.cluster.node.devices.allocation import GPU_RESOURCE
from trainwright.cluster.node.devices.nvidia import Gpu, read_gpus
from trainwright.cluster.node.disk import Disk, how_to_free
from trainwright.cluster.node.supervisor.sandbox.detection import Sandbox
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import NODE_ADDRESS, OWN_PORTS
from trainwright.objects.node_annotations import SANDBOX
from trainwright.objects.times import format_micro_time, format_time

LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40

_HEALTHY = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "the node does not monitor its memory"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "the node does not monitor its process ids"),
    "Ready": ("True", "KubeletReady", "pods run as processes of this machine"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    hostname: str
    cpus: int
    memory: int
    disk: int
    pods: int
    boot_id: str
    machine_id: str
    kernel: str
    os_image: str
    architecture: str
    gpus: tuple[Gpu, ...] = ()

    @property
    def allocatable(self) -> dict[str, Fraction]:
        amounts = {"cpu": self.cpus, "memory": self.memory, "ephemeral-storage": self.disk}
        if self.gpus:
            amounts[GPU_RESOURCE] = len(self.gpus)
        return {name: Fraction(amount) for name, amount in amounts.items()}


def read_machine(directory: Path) -> Machine:
    """`directory` is the node's: the disk of its pods is the ephemeral storage."""
    disk = os.statvfs(directory)
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return Machine(
        hostname=platform.node(),
        cpus=len(os.sched_getaffinity(0)),
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        disk=disk.f_blocks * disk.f_frsize,
        pods=most_pods(),
        boot_id=_read("/proc/sys/kernel/random/boot_id"),
        machine_id=_read("/etc/machine-id"),
        kernel=platform.release(),
        os_image=_os_name(_read("/etc/os-release")),
        architecture=architecture,
        gpus=read_gpus(),
    )


def node_metadata(name: str, machine: Machine, *, sandbox: Sandbox) -> Object:
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": machine.architecture,
        **_gpu_labels(machine.gpus),
    }
    return {"name": name, "labels": labels, "annotations": {SANDBOX: sandbox.level}}


def _gpu_labels(gpus: Sequence[Gpu]) -> dict[str, str]:
    """As NVIDIA's GPU feature discovery sets them, of the first GPU."""
    if not gpus:
        return {}
    return {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.count": str(len(gpus)),
        "nvidia.com/gpu.product": gpus[0].name.replace(" ", "-"),
        "nvidia.com/gpu.memory": str(gpus[0].memory // 2**20),
    }


def node_status(
    machine: Machine,
    before: Object,
    *,
    sandbox: Sandbox,
    disk: Disk,
    now: datetime,
    limits_reason: str = "",
    images: Sequence[Object] = (),
) -> Object:
    """`limits_reason` is why limits of cpu and memory are not enforced."""
    capacity = {
        "cpu": str(machine.cpus),
        "memory": f"{machine.memory // 1024}Ki",
        "ephemeral-storage": f"{machine.disk // 1024}Ki",
        "pods": str(machine.pods),
        **({GPU_RESOURCE: str(len(machine.gpus))} if machine.gpus else {}),
    }
    old = {condition["type"]: condition for condition in before.get("conditions") or []}
    conditions = []
    health = {
        **_HEALTHY,
        "DiskPressure": _disk_pressure(disk),
        "LimitsEnforced": _limits_enforced(limits_reason),
        OWN_PORTS: _own_ports(sandbox.shared_ports),
    }
    for kind, (status, reason, message) in health.items():
        same = old.get(kind, {}).get("status") == status
        since = old[kind].get("lastTransitionTime") if same else None
        sandbox_note = f" (sandbox {sandbox.level}: {sandbox.reason})" if kind == "Ready" and sandbox.reason else ""
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message + sandbox_note,
                "lastHeartbeatTime": format_time(now),
                "lastTransitionTime": since or format_time(now),
            }
        )
    return {
        "capacity": capacity,
        "allocatable": capacity,
        "conditions": conditions,
        "images": list(images),
        "addresses": [
            {"type": "InternalIP", "address": NODE_ADDRESS},
            {"type": "Hostname", "address": machine.hostname},
        ],
        "nodeInfo": {
            "machineID": machine.machine_id,
            "systemUUID": machine.machine_id,
            "bootID": machine.boot_id,
            "kernelVersion": machine.kernel,
            "osImage": machine.os_image,
            "containerRuntimeVersion": f"trainwright://{__version__}",
            "kubeletVersion": f"v{__version__}",
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": machine.architecture,
        },
    }


def _limits_enforced(reason: str) -> tuple[str, str, str]:
    if reason:
        return "False", "NoControlGroups", f"limits of cpu and memory are not enforced: {reason}"
    return "True", "ControlGroups", "limits of cpu and memory are enforced by control groups"


def _own_ports(reason: str) -> tuple[str, str, str]:
    if reason:
        return "False", "SharedPorts", shared_ports_text(reason)
    return "True", "SystemCallFilter", "every pod has its own ports, at its own address"


def shared_ports_text(reason: str) -> str:
    """Why pods have the ports of the machine, what that means, and what to do."""
    return (
        f"pods have the ports of this machine: {reason}; two pods cannot listen on the same port. Pods have their own "
        "with Linux 5.9 or later, if a container around the cluster allows seccomp filters with user notification"
    )


def _disk_pressure(disk: Disk) -> tuple[str, str, str]:
    if disk.is_almost_full:
        return "True", "KubeletHasDiskPressure", f"{disk.summary}; {how_to_free(disk.directory)}"
    return "False", "KubeletHasNoDiskPressure", disk.summary


def lease(name: str, *, now: datetime) -> Object:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASE_NAMESPACE},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": format_micro_time(now)},
    }


def _os_name(text: str) -> str:
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key == "PRETTY_NAME":
            return value.strip('"')
    return "Linux"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
