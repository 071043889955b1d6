"""Which GPUs the containers of a pod get. Pure decisions; `GpuAllocations` remembers them while the pods run.

As by the kubelet's device manager: a GPU belongs to one container of one pod at a time. Init containers run before the
others and may use the same ones; sidecars run beside them and may not.
"""

from collections.abc import Iterable, Mapping, Sequence

from trainwright.cluster.node.devices.nvidia import Gpu
from trainwright.cluster.node.supervisor.pod_json import ContainerJson
from trainwright.objects import Object
from trainwright.objects.kinds.pods import is_sidecar
from trainwright.objects.quantities import parse_quantity

GPU_RESOURCE = "nvidia.com/gpu"

ContainerGpus = Mapping[str, tuple[str, ...]]
"""The UUIDs of GPUs by the name of the container."""


def requested_gpus(container: Object) -> int:
    resources = container.get("resources") or {}
    for kind in ("limits", "requests"):
        if amount := (resources.get(kind) or {}).get(GPU_RESOURCE):
            return int(parse_quantity(amount))
    return 0


def distribute(pod: Object, free: Sequence[str]) -> ContainerGpus | None:
    """Takes GPUs for all containers from the free ones, the first ones first; None if there are too few."""
    spec = pod["spec"]
    inits = spec.get("initContainers") or []
    beside = [init for init in inits if is_sidecar(init)] + spec["containers"]
    before = [init for init in inits if not is_sidecar(init)]
    wanted = sum(requested_gpus(container) for container in beside)
    if max([wanted, *(requested_gpus(init) for init in before)]) > len(free):
        return None
    given: dict[str, tuple[str, ...]] = {}
    start = 0
    for container in beside:
        end = start + requested_gpus(container)
        given[container["name"]] = tuple(free[start:end])
        start = end
    return given | {init["name"]: tuple(free[: requested_gpus(init)]) for init in before}


class GpuAllocations:
    def __init__(self, gpus: Iterable[Gpu]) -> None:
        self._gpus = {gpu.uuid: gpu for gpu in gpus}
        self._pods: dict[str, ContainerGpus] = {}

    def allocate(self, pod: Object) -> bool:
        """Gives the containers of the pod their GPUs, unless they have them; False if too few are free."""
        uid = pod["metadata"]["uid"]
        if uid in self._pods:
            return True
        used = {uuid for given in self._pods.values() for uuids in given.values() for uuid in uuids}
        given = distribute(pod, [uuid for uuid in self._gpus if uuid not in used])
        if given is not None and any(given.values()):
            self._pods[uid] = given
        return given is not None

    def of_pod(self, uid: str) -> dict[str, tuple[Gpu, ...]]:
        """By the name of the container."""
        given = self._pods.get(uid, {})
        return {name: tuple(self._gpus[uuid] for uuid in uuids) for name, uuids in given.items()}

    def restore(self, uid: str, containers: Iterable[ContainerJson]) -> None:
        """A pod that an earlier agent started; `containers` are those of its pod.json."""
        given = {
            container["name"]: tuple(uuid for uuid in container.get("gpus") or () if uuid in self._gpus)
            for container in containers
        }
        if any(given.values()):
            self._pods[uid] = given

    def release(self, uid: str) -> None:
        self._pods.pop(uid, None)
