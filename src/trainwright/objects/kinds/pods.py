"""Pods as typed views: metadata, node and status, and the parts of the status that most controllers need."""

from typing import Any

import msgspec

from trainwright.objects import Object
from trainwright.objects.decimals import parse_decimal
from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.node_annotations import SHUTDOWN_RESTARTS
from trainwright.objects.quantities import SIDECAR

MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a pod that shows a program which the kubelet does not run through the API."""


class Terminated(View, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    signal: int | None = None
    started_at: str | None = None
    finished_at: str | None = None


class Waiting(View, frozen=True):
    reason: str = ""
    message: str = ""


class Running(View, frozen=True):
    started_at: str | None = None


class ContainerState(View, frozen=True):
    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(View, frozen=True):
    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodCondition(View, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class PodAddressStatus(View, frozen=True):
    """The part of the status that says whether a pod runs, and where."""

    phase: str = "Pending"
    pod_ip: str = msgspec.field(name="podIP", default="")

    @property
    def finished(self) -> bool:
        return self.phase in {"Succeeded", "Failed"}

    @property
    def is_reachable(self) -> bool:
        return bool(self.pod_ip) and not self.finished


class PodReadinessStatus(PodAddressStatus, frozen=True):
    """With the conditions."""

    conditions: tuple[PodCondition, ...] = ()

    @property
    def ready(self) -> bool:
        return self.is_true("Ready")

    def is_true(self, type_: str) -> bool:
        return any(condition.type == type_ and condition.status == "True" for condition in self.conditions)

    def condition(self, type_: str) -> PodCondition | None:
        return next((condition for condition in self.conditions if condition.type == type_), None)


class PodStatus(PodReadinessStatus, frozen=True):
    reason: str = ""
    message: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class ContainerPort(View, frozen=True):
    name: str = ""
    container_port: int = 0
    host_port: int = 0
    host_ip: str = msgspec.field(name="hostIP", default="")
    protocol: str = "TCP"


class ContainerWithPorts(View, frozen=True):
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


def is_sidecar(init_container: Object) -> bool:
    """True for an init container that runs beside all later containers until the pod ends."""
    return init_container.get("restartPolicy") == SIDECAR


class PodPortsSpec(View, frozen=True):
    """The part of the spec that says which ports a pod declares."""

    node_name: str = ""
    host_network: bool = False
    containers: tuple[ContainerWithPorts, ...] = ()
    init_containers: tuple[ContainerWithPorts, ...] = ()

    @property
    def ports(self) -> list[ContainerPort]:
        """The ports of containers, and of init containers that run beside them."""
        sidecars = (container for container in self.init_containers if container.restart_policy == SIDECAR)
        return [port for container in (*self.containers, *sidecars) for port in container.ports]


class PodSpec(View, frozen=True):
    node_name: str = ""
    restart_policy: str = "Always"
    affinity: dict[str, Any] | None = None


class Pod(View, frozen=True):
    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def phase(self) -> str:
        return self.status.phase or "Pending"

    @property
    def finished(self) -> bool:
        return self.status.finished

    @property
    def ready(self) -> bool:
        return self.status.ready

    @property
    def restarts(self) -> int:
        """The number of restarts by the kubelet, over all containers and init containers, without those that followed a
        shutdown of the embedded cluster."""
        statuses = self.status.init_container_statuses + self.status.container_statuses
        excused = parse_decimal(self.metadata.annotations.get(SHUTDOWN_RESTARTS, ""))
        restarts = sum(status.restart_count for status in statuses)
        return max(0, restarts - (excused or 0))

    def terminated(self, container: str) -> Terminated | None:
        """The terminated state of the named container, if it has terminated."""
        for status in self.status.container_statuses:
            if status.name == container:
                return status.state.terminated
        return None


def read_pod(obj: Object) -> Pod:
    return msgspec.convert(obj, Pod)
