"""Which container gets which GPU."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.devices.allocation import GpuAllocations, distribute
from trainwright.cluster.node.devices.nvidia import Gpu
from trainwright.cluster.node.supervisor.pod_json import ContainerJson
from trainwright.objects import Object

GPUS = [
    Gpu(uuid=f"GPU-{number}", name="NVIDIA H200", memory=141 << 30, nodes=(f"/dev/nvidia{number}",))
    for number in range(4)
]


def container(name: str, gpus: int, **fields: Any) -> Object:
    return {"name": name, "resources": {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}, **fields}


def pod(*gpus: int, uid: str = "u", inits: list[Object] | None = None) -> Object:
    containers = [container(f"c{number}", amount) for number, amount in enumerate(gpus)]
    return {"metadata": {"uid": uid}, "spec": {"containers": containers, "initContainers": inits or []}}


def test_containers_of_a_pod_get_different_gpus() -> None:
    assert distribute(pod(1, 0, 2), ["a", "b", "c"]) == {"c0": ("a",), "c1": (), "c2": ("b", "c")}
    assert distribute(pod(1, 0, 2), ["a", "b"]) is None


def test_init_containers_use_the_gpus_of_the_containers_but_sidecars_do_not() -> None:
    inits = [container("prepare", 2), container("sidecar", 1, restartPolicy="Always")]
    assert distribute(pod(1, inits=inits), ["a", "b"]) == {"prepare": ("a", "b"), "sidecar": ("a",), "c0": ("b",)}
    assert distribute(pod(1, inits=[container("prepare", 3)]), ["a", "b"]) is None


def test_a_gpu_is_free_when_its_pod_has_ended() -> None:
    allocations = GpuAllocations(GPUS[:1])
    assert allocations.allocate(pod(1, uid="first"))
    assert allocations.allocate(pod(1, uid="first"))
    assert allocations.of_pod("first") == {"c0": (GPUS[0],)}
    assert not allocations.allocate(pod(1, uid="second"))
    assert allocations.allocate(pod(0, uid="without"))
    assert allocations.of_pod("without") == {}
    allocations.release("first")
    assert allocations.allocate(pod(1, uid="second"))
    assert allocations.of_pod("second") == {"c0": (GPUS[0],)}


def test_pods_of_an_earlier_agent_keep_their_gpus() -> None:
    allocations = GpuAllocations(GPUS[:2])
    fields: ContainerJson = {"name": "c0", "argv": [], "env": {}, "cwd": "/", "mounts": []}
    allocations.restore("old", [{**fields, "gpus": ["GPU-0", "removed"]}, {**fields, "name": "of an earlier version"}])
    assert allocations.allocate(pod(1, uid="new"))
    assert allocations.of_pod("new") == {"c0": (GPUS[1],)}


@given(st.lists(st.tuples(st.integers(0, 5), st.lists(st.integers(0, 3), min_size=1, max_size=3), st.booleans())))
def test_no_gpu_belongs_to_two_containers(steps: list[tuple[int, list[int], bool]]) -> None:
    allocations, running = GpuAllocations(GPUS), set[str]()
    for number, gpus, ends in steps:
        uid = str(number)
        if ends:
            allocations.release(uid)
            running.discard(uid)
        elif uid not in running and allocations.allocate(pod(*gpus, uid=uid)):
            running.add(uid)
            given_to = allocations.of_pod(uid)
            assert [len(given_to.get(f"c{index}", ())) for index in range(len(gpus))] == gpus
        used = [gpu.uuid for uid in running for gpus_of in allocations.of_pod(uid).values() for gpu in gpus_of]
        assert len(used) == len(set(used)) <= len(GPUS)
