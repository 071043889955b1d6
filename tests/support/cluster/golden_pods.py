"""Golden files of pods: what agent and supervisor of a version wrote about pods of every shape.

`python -m tests.support.cluster.golden_pods` records them, as root, with the code that is checked out: one directory
for each level and shape below `tests/cluster/node/golden/`, with `${NAME}` in the place of what differs between
machines. To be recorded again only for a release, from the code before the first change of its successor.
"""

import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.support.cluster.node import Node, running_node
from tests.support.cluster.pod_shapes import SHAPES, PodShape
from tests.support.images.builder import add_image
from tests.support.images.machine_image import add_machine_image
from trainwright.cluster.address_range import second_address
from trainwright.cluster.images.formats import HOST_FILES_LABEL, RunConfig
from trainwright.cluster.images.layers.unpacked import UnpackedLayers
from trainwright.cluster.images.store import ImageStore
from trainwright.cluster.node import machine
from trainwright.cluster.node.devices.nvidia import Gpu
from trainwright.cluster.node.network.hosts import api_server_variables
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import NODE_ADDRESS
from trainwright.objects.resources import CONFIG_MAPS, PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES, PODS, SECRETS

GOLDEN = Path(__file__).parents[2] / "cluster" / "node" / "golden"
GPU = Gpu(uuid="GPU-0", name="NVIDIA H200", memory=141 << 30, nodes=("/dev/kmsg",))
_NOT_KEPT = ("lock", "proc", "root", "shm", "supervisor.json", "supervisor.log", "pod.json", "state.json")
"""Of a pod's directory: what has no content, means only one machine, or has a golden file of its own."""


@asynccontextmanager
async def golden_node(directory: Path, level: str) -> AsyncIterator[Node]:
    """A node with the objects and images that the pods need; without its agent."""
    shared = directory / "shared"
    for name in ("claim", "nfs", "host"):
        (shared / name).mkdir(parents=True)
        (shared / name).chmod(0o777)
    shared.chmod(0o777)
    store = ImageStore(directory / "images")
    UnpackedLayers(store).directories(add_machine_image(store))
    over = RunConfig(labels={HOST_FILES_LABEL: "true"}, cmd=["sh"])
    UnpackedLayers(store).directories(add_image(store, "over:1", ({"srv/own/file": b"own\n"},), over))
    async with running_node(directory / "node", **node_options(directory, level)) as node:
        await _create_objects(node, shared)
        yield node


def node_options(directory: Path, level: str) -> dict[str, Any]:
    return {
        "sandbox": level,
        "images": directory / "images",
        "nfs_mappings": {"filer:/export": str(directory / "shared" / "nfs")},
    }


async def _create_objects(node: Node, shared: Path) -> None:
    def named(kind: str, name: str, **fields: Any) -> Object:
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "default"}, **fields}

    await node.client.create(CONFIG_MAPS, named("ConfigMap", "settings", data={"key": "from a config map\n"}))
    await node.client.create(CONFIG_MAPS, named("ConfigMap", "owner"))
    await node.client.create(SECRETS, named("Secret", "password", stringData={"key": "from a secret\n"}))
    amount = {"storage": "1Gi"}
    volume = named("PersistentVolume", "pv")
    volume["metadata"].pop("namespace")
    volume["spec"] = {"capacity": amount, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": f"{shared}/claim"}}
    await node.client.create(PERSISTENT_VOLUMES, volume)
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": amount}, "volumeName": "pv"}
    claim = await node.client.create(PERSISTENT_VOLUME_CLAIMS, named("PersistentVolumeClaim", "claim", spec=spec))
    reference = {"namespace": "default", "name": "claim", "uid": claim["metadata"]["uid"]}
    await node.client.patch(PERSISTENT_VOLUMES, "pv", {"spec": {"claimRef": reference}})
    bound = {**claim, "status": {"phase": "Bound"}}
    await node.client.replace(PERSISTENT_VOLUME_CLAIMS, bound, subresource="status")


async def create_pod(node: Node, name: str, directory: Path) -> Object:
    shape = SHAPES[name]
    metadata = {"name": name, "namespace": "default", **shape.metadata}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**shape.spec, "nodeName": "local"}}
    values = {"SHARED": str(directory / "shared"), "OWNER_UID": await owner_uid(node)}
    return await node.client.create(PODS, json.loads(fill(json.dumps(pod), values)))


async def owner_uid(node: Node) -> str:
    return str((await node.client.get(CONFIG_MAPS, "owner", namespace="default"))["metadata"]["uid"])


def has_arrived(pod: Object, shape: PodShape) -> bool:
    """Whether the pod is in the state in which it is recorded."""
    status = pod.get("status") or {}
    statuses = status.get("containerStatuses") or []
    if status.get("phase") != shape.phase:
        return False
    if shape.phase != "Running" or shape.ready:
        return shape.phase != "Running" or all(one["ready"] for one in statuses)
    reasons = {one["state"].get("waiting", {}).get("reason") for one in statuses}
    return "CrashLoopBackOff" in reasons or [one["ready"] for one in statuses] == [True, False]


def machine_values(node: Node, directory: Path, pod: Object, address: str) -> dict[str, str]:
    """What stands for the placeholders on this machine, longer values before their beginnings."""
    variables = api_server_variables(node.config.server)
    uid = pod["metadata"]["uid"]
    cgroups = json.loads((node.directory / "cgroups.json").read_text())["cgroups"]
    store = ImageStore(directory / "images")
    images = {"MACHINE": store.find("machine"), "OVER": store.find("over:1")}
    found = {}
    for key, image in images.items():
        assert image is not None
        for number, path in enumerate(UnpackedLayers(store).directories(image)):
            found[f"{key}_LAYER_{number}"] = str(path)
        found[f"{key}_DIGEST"] = image.descriptor.digest
    return {
        **found,
        **{f"CGROUP_{controller.upper()}": path for controller, path in cgroups.items()},
        "POD": str(node.directory / "pods" / uid),
        "NODE": str(node.directory),
        "IMAGES": str(directory / "images"),
        "SHARED": str(directory / "shared"),
        "OWNER_UID": pod["metadata"]["ownerReferences"][0]["uid"],
        "UID": uid,
        "PYTHON": sys.executable,
        "PYTHON_BIN": str(Path(sys.executable).parent),
        "PYTHON_PREFIX": str(Path(sys.executable).parents[1]),
        "HOME": str(Path.home()),
        **({} if address == NODE_ADDRESS else {"SECOND_ADDRESS": second_address(address), "ADDRESS": address}),
        "API_HOST": variables["KUBERNETES_SERVICE_HOST"],
        "API_PORT": variables["KUBERNETES_SERVICE_PORT"],
        "BOOT_ID": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
    }


def fill(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda found: values.get(found[1], found[0]), text)


def _with_placeholders(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        if name == "API_PORT":
            pattern = rf"(?<=[:_\"]){value}(?=[_\"/])"
        else:  # a path does not stand for the end of another one
            before = r"(?<![\w./-])" if value.startswith("/") else "" if name == "UID" else r"(?<![\w.-])"
            pattern = rf"{before}{re.escape(value)}(?![\w-]|\.\w)"
        text = re.sub(pattern, f"${{{name}}}", text)
    return text


def _read_tree(directory: Path, *, running: bool) -> list[Object]:
    """Every directory, file and link of a pod. The layers of one that runs are those of the machine's directories."""
    found: list[Object] = []
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if name.partition("/")[0] in (*_NOT_KEPT, *(["scratch"] if running else [])):
            continue
        entry = {"path": name, "mode": oct(path.lstat().st_mode & 0o7777)}
        if path.is_symlink():
            found.append({"path": name, "link": str(path.readlink())})
        elif path.is_dir():
            found.append(entry)
        elif path.is_file():
            found.append({**entry, "text": path.read_bytes().decode()})
    return found


def write_tree(directory: Path, entries: list[Object], below: tuple[str, ...] = ()) -> None:
    """`below` are the first parts of the paths that are written; none for all."""
    directory.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        path = directory / entry["path"]
        if below and path.relative_to(directory).parts[0] not in below:
            continue
        if "link" in entry:
            path.symlink_to(entry["link"])
            continue
        if "text" in entry:
            path.write_bytes(entry["text"].encode())
        else:
            path.mkdir(exist_ok=True)
        path.chmod(int(entry["mode"], 8))


def load(level: str, shape: str, name: str, values: Mapping[str, str]) -> Any:
    return json.loads(fill((GOLDEN / level / shape / f"{name}.json").read_text(), values))


async def _record(level: str) -> None:
    shutil.rmtree(GOLDEN / level, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="trainwright-golden-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        async with golden_node(directory, level) as node:
            shapes = {name: shape for name, shape in SHAPES.items() if level in shape.levels}
            for pod_name in shapes:
                await create_pod(node, pod_name, directory)
            for pod_name, shape in shapes.items():
                pod = await node.until(pod_name, lambda pod, shape=shape: has_arrived(pod, shape))  # type: ignore[misc]
                _write_golden(node, directory, level, pod)


def _write_golden(node: Node, directory: Path, level: str, pod: Object) -> None:
    own = node.directory / "pods" / pod["metadata"]["uid"]
    config = json.loads((own / "pod.json").read_text())
    values = machine_values(node, directory, pod, config["address"])
    for mount in config["containers"][0]["mounts"]:
        if mount["target"] == "/dev/shm":
            values = {"SHARED_MEMORY": mount["source"], **values}
    pod["metadata"].pop("managedFields", None)
    contents = {
        "pod": config,
        "state": json.loads((own / "state.json").read_text()),
        "object": pod,
        "files": _read_tree(own, running=pod["status"]["phase"] == "Running"),
    }
    target = GOLDEN / level / pod["metadata"]["name"]
    target.mkdir(parents=True)
    for name, content in contents.items():
        text = _with_placeholders(json.dumps(content, indent=1), values)
        (target / f"{name}.json").write_text(f"{text}\n")


if __name__ == "__main__":
    assert os.getuid() == 0, "as root: files of every shape are recorded"
    with patch.object(machine, "read_gpus", lambda: (GPU,)):
        for each in ("overlay", "plain"):
            asyncio.run(_record(each))
