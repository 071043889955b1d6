"""The fields of a pod that have no effect on this node; a Warning event names them."""

from collections.abc import Iterator
from typing import Any

from trainwright.cluster.node.devices.allocation import GPU_RESOURCE
from trainwright.cluster.node.supervisor.sandbox.sandbox import OVERLAY
from trainwright.objects import Object
from trainwright.objects.kinds.pods import is_sidecar

_POD_FIELDS = frozenset(
    {
        "containers", "initContainers", "volumes", "restartPolicy", "terminationGracePeriodSeconds", "nodeName",
        "hostname", "subdomain", "hostAliases", "hostNetwork", "shareProcessNamespace", "activeDeadlineSeconds",
        "readinessGates",
        # for the scheduler, admission and image pulls, not for the node
        "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "schedulingGates", "schedulerName",
        "priority", "priorityClassName", "preemptionPolicy", "serviceAccountName", "serviceAccount",
        "automountServiceAccountToken", "imagePullSecrets", "enableServiceLinks", "overhead", "os",
        # see `security_context`
        "securityContext",
    }
)  # fmt: skip
_CONTAINER_FIELDS = frozenset(
    {
        "name", "image", "imagePullPolicy", "command", "args", "workingDir", "env", "envFrom", "volumeMounts", "ports",
        "securityContext", "stdin", "stdinOnce", "tty", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle",
        "terminationMessagePath", "terminationMessagePolicy",
    }
)  # fmt: skip
_HARMLESS: dict[str, Any] = {
    "dnsPolicy": {"ClusterFirst", "Default", "ClusterFirstWithHostNet"},
}
_SCHEDULED_ONLY = frozenset({"cpu", "memory", "ephemeral-storage"})


def unsupported_fields(pod: Object, level: str, *, limits: bool = False) -> tuple[str, ...]:
    """Paths of fields; cpu and memory are one entry for all containers. `limits`: the node enforces them."""
    return tuple(_unknown_fields(pod["spec"], level)) + tuple(_resources(pod["spec"], enforced=limits))


def _unknown_fields(spec: Object, level: str) -> Iterator[str]:
    yield from (f"spec.{name}" for name in _unknown(spec, _POD_FIELDS))
    if spec.get("shareProcessNamespace") and level != OVERLAY:
        yield "spec.shareProcessNamespace"
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or []):
            path = f"spec.{kind}[{index}]"
            known = _CONTAINER_FIELDS | {"resources"}
            if kind == "initContainers" and is_sidecar(container):
                known |= {"restartPolicy"}
            yield from (f"{path}.{name}" for name in _unknown(container, known))
            if (container.get("lifecycle") or {}).get("stopSignal"):
                yield f"{path}.lifecycle.stopSignal"
            resources = container.get("resources") or {}
            for group in ("limits", "requests"):
                unknown = set(resources.get(group) or {}) - _SCHEDULED_ONLY - {GPU_RESOURCE}
                yield from (f"{path}.resources.{group}[{name}]" for name in sorted(unknown))
            yield from (f"{path}.resources.{name}" for name in resources if name not in {"limits", "requests"})
            yield from _mount_fields(container, path, level)
    for index, volume in enumerate(spec.get("volumes") or []):
        empty = volume.get("emptyDir") or {}
        in_memory = empty.get("medium") == "Memory" and level == OVERLAY
        if empty.get("medium") and not in_memory:
            yield f"spec.volumes[{index}].emptyDir.medium"


def _mount_fields(container: Object, path: str, level: str) -> Iterator[str]:
    for index, mount in enumerate(container.get("volumeMounts") or []):
        if mount.get("readOnly") and level != OVERLAY:
            yield f"{path}.volumeMounts[{index}].readOnly"
        for name in ("mountPropagation", "recursiveReadOnly"):
            if mount.get(name) not in {None, "None", "Disabled"}:
                yield f"{path}.volumeMounts[{index}].{name}"


def _resources(spec: Object, *, enforced: bool) -> Iterator[str]:
    for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
        resources = container.get("resources") or {}
        names = set(resources.get("limits") or {}) | set(resources.get("requests") or {})
        if enforced:
            if "ephemeral-storage" in (resources.get("limits") or {}):
                yield "resources.limits[ephemeral-storage] (counted by the scheduler but not enforced)"
                return
        elif names & _SCHEDULED_ONLY:
            yield "resources (cpu and memory are counted by the scheduler but not enforced)"
            return


def _unknown(fields: Object, known: frozenset[str]) -> list[str]:
    """Names of fields that are set, unknown to the node and not harmless."""
    return [
        name
        for name, value in fields.items()
        if name not in known and value not in (None, False, "", {}, []) and not _harmless(name, value)
    ]


def _harmless(name: str, value: Any) -> bool:
    return name in _HARMLESS and isinstance(value, str) and value in _HARMLESS[name]
