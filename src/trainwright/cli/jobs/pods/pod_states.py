"""What a pod shows: its state in one word, why its containers wait, and where its programs listen. Pure.

The embedded node reports listeners in an annotation, which users of a namespace can write: nothing of it is shown but
valid port numbers.
"""

import ipaddress
import re
from collections.abc import Iterable

from trainwright.api.kinds.mpi import KUBECTL_DELIVERY
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod, Waiting
from trainwright.objects.node_annotations import LISTENING
from trainwright.objects.paths import value_at

PERMANENT_REASONS = frozenset({"ImageHasNoCommand", "InvalidImageName", "UnsupportedVolume"})
"""Reasons of a waiting container that only a change of the manifest resolves."""
NORMAL_REASONS = frozenset({"", "ContainerCreating", "PodInitializing"})


def pod_state(pod: Pod, job_pods: Iterable[Pod] = ()) -> str:
    """The pod's phase, or a more specific word, like the STATUS of `kubectl get pods`. `job_pods` are its job's."""
    if pod.metadata.terminating:
        return "Terminating"
    waiting = waiting_reason(pod)
    if waiting and waiting.reason not in NORMAL_REASONS:
        return waiting.reason
    if pod.phase == "Failed" and pod.status.reason:
        return pod.status.reason
    if pod.phase == "Pending":
        return _pending(pod, job_pods)
    restarts = sum(status.restart_count for status in pod.status.container_statuses)
    if not restarts or pod.phase != "Running":
        return pod.phase
    codes = [
        ended.exit_code
        for status in pod.status.container_statuses
        if (ended := status.last_state.terminated) and ended.exit_code
    ]
    return f"Running (restart {restarts}{f', last exit code {codes[0]}' if codes else ''})"


def _pending(pod: Pod, job_pods: Iterable[Pod]) -> str:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason:
            return condition.reason
    initializing = [status.name for status in pod.status.init_container_statuses if status.state.running]
    if KUBECTL_DELIVERY in initializing:
        workers = [other for other in job_pods if other.name != pod.name]
        return f"waits for workers {sum(worker.ready for worker in workers)}/{len(workers)}"
    return "Init" if initializing else "Pending"


def waiting_reason(pod: Pod) -> Waiting | None:
    """Why a container waits; a container that cannot start says more than one that waits for its init containers."""
    statuses = pod.status.init_container_statuses + pod.status.container_statuses
    waiting = [status.state.waiting for status in statuses if status.state.waiting]
    return next((state for state in waiting if state.reason not in NORMAL_REASONS), waiting[0] if waiting else None)


MAX_PORTS = 20
"""How many ports of one pod are shown."""
_NUMBER = re.compile(r"[1-9][0-9]{0,4}")


def listening_ports(pod: Pod) -> list[int]:
    """The TCP ports at the pod's address; none unless the pod runs."""
    if pod.phase != "Running" or not _is_address(pod.status.pod_ip):
        return []
    words = pod.metadata.annotations.get(LISTENING, "").split(",")
    numbers = {int(word) for word in words if _NUMBER.fullmatch(word)}
    return sorted(number for number in numbers if number < 65536)[:MAX_PORTS]


def listening_addresses(pod: Pod) -> list[str]:
    """`127.6.64.10:6006`"""
    return [f"{pod.status.pod_ip}:{port}" for port in listening_ports(pod)]


def declared_ports(pod: Object) -> set[int]:
    """The ports that the containers of the manifest declare."""
    containers = value_at(pod, "spec", "containers", default=())
    ports = (port for container in containers for port in container.get("ports") or ())
    return {port["containerPort"] for port in ports if port.get("containerPort")}


def listener_line(rank: str, address: str) -> str:
    return f"{rank} listens at {address}"


def _is_address(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True
