"""Where the programs of a pod listen, as the embedded node reports it. Pure.

The report is an annotation, which users of a namespace can write: nothing of it is shown but valid port numbers.
"""

import ipaddress
import re

from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.node_annotations import LISTENING
from trainwright.objects.paths import value_at

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
