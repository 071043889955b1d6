"""An upgrade while pods run: pods that an earlier version set up are adopted, followed and ended by the node of today.

Their files are in `golden/`, one directory for each level and shape. `python -m tests.support.cluster.golden_pods`
records those of the version that is checked out.
"""

import contextlib
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.golden_pods import (
    GPU,
    create_pod,
    golden_node,
    has_arrived,
    load,
    machine_values,
    node_options,
    owner_uid,
    write_tree,
)
from tests.support.cluster.node import Node
from tests.support.cluster.pod_shapes import SHAPES
from tests.support.waiting import eventually
from trainwright.cluster.node.devices.allocation import GpuAllocations
from trainwright.cluster.node.node_streams import NodeStreams
from trainwright.cluster.node.pods.fork_server_starter import ForkServer
from trainwright.cluster.node.pods.pod_directory import PodDirectory
from trainwright.cluster.node.pods.pod_status import pod_status
from trainwright.cluster.node.records.pod_files import find_pod_files
from trainwright.cluster.node.records.pod_records import PodRecord, RunLog, pod_records
from trainwright.cluster.node.supervisor.sandbox.detection import detect_sandbox
from trainwright.objects import Object
from trainwright.objects.kinds.pod_subresources import StreamOptions
from trainwright.objects.node_annotations import HOST_FILES

LEVELS = ("overlay", "plain")
SET_UP = ("volumes", "termination", "hostname")
"""What the agent makes in a pod's directory before its supervisor starts."""
FIRST_ADDRESS = 1000


def shapes(level: str, *, running: bool) -> list[str]:
    is_root = os.getuid() == 0
    return [
        name
        for name, shape in SHAPES.items()
        if level in shape.levels and (is_root or not shape.needs_root) and (shape.phase == "Running") == running
    ]


@dataclass
class Upgrade:
    """A node whose agent was stopped; pods of the earlier version come into being on it."""

    node: Node
    directory: Path
    level: str
    user_namespace: bool
    values: dict[str, dict[str, str]] = field(default_factory=dict)

    async def create(self, shape: str) -> PodDirectory:
        """The Pod object, and the directory of the pod before its supervisor starts."""
        pod = await create_pod(self.node, shape, self.directory)
        address = str(self.node.addresses.addresses.pods[FIRST_ADDRESS + len(self.values)])
        values = machine_values(self.node, self.directory, pod, address)
        self.values[shape] = {**values, "SHARED_MEMORY": str(self.directory / "shared")}
        found = PodDirectory(self.node.directory / "pods" / pod["metadata"]["uid"])
        write_tree(found.path, self.load(shape, "files"), SET_UP)
        config = self.load(shape, "pod")
        config |= {"ownUsers": self.user_namespace, "asRoot": self.user_namespace and shape == "image"}
        if "${" in json.dumps(config["cgroups"]):  # this machine allows no limits
            config["cgroups"] = {}
        (found.path / "pod.json").write_text(json.dumps(config))
        for container in (*config["initContainers"], *config["containers"]):
            for mount in container["mounts"]:
                source = Path(mount["source"])
                if source.is_relative_to(self.node.directory / "hosts"):
                    source.parent.mkdir(exist_ok=True)
                    source.touch()
        return found

    def load(self, shape: str, name: str) -> Any:
        return load(self.level, shape, name, self.values[shape])

    def restore(self, shape: str, directory: PodDirectory) -> None:
        """The directory of a pod that has ended, or whose supervisor has."""
        write_tree(directory.path, self.load(shape, "files"))
        (directory.path / "state.json").write_text(json.dumps(self.load(shape, "state")))
        boot = self.values[shape]["BOOT_ID"]
        identity = {"pid": os.getpid(), "startTicks": 1, "bootId": boot}
        (directory.path / "supervisor.json").write_text(json.dumps(identity))

    @contextlib.asynccontextmanager
    async def supervisors(self) -> AsyncIterator[ForkServer]:
        server = ForkServer(sys.executable, self.node.directory, b"", self.node.addresses.mark)
        try:
            yield server
        finally:
            server.close()

    async def start(self, names: list[str]) -> None:
        async with self.supervisors() as server:
            for name in names:
                supervisor = await server.start_supervisor(await self.create(name))
                supervisor.close()

    async def up(self) -> None:
        await self.node.up(**node_options(self.directory, self.level))

    async def records(self) -> dict[str, PodRecord]:
        return {record.name: record for record in pod_records(self.node.directory, await owner_uid(self.node))}


@pytest.fixture(params=LEVELS)
async def upgrade(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Upgrade]:
    for path in (tmp_path, *list(tmp_path.parents)[:3]):
        path.chmod(path.stat().st_mode | 0o011)  # other users of containers reach the shared directory
    async with golden_node(tmp_path, request.param) as node:
        await node.down()
        sandbox = detect_sandbox(str(tmp_path), forced=request.param, python=sys.executable)
        yield Upgrade(node, tmp_path, request.param, sandbox.user_namespace)


def comparable(pod: Object) -> Object:
    """Without times, and without the annotation that the agent writes when it starts a pod."""
    status = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", json.dumps(pod["status"], sort_keys=True))
    annotations = {key: value for key, value in pod["metadata"].get("annotations", {}).items() if key != HOST_FILES}
    return {"status": json.loads(status), "annotations": annotations}


def log_texts(record: PodRecord) -> dict[tuple[str, int], list[str]]:
    found = {}
    for run in record.runs:
        log = RunLog(record.directory.parents[1], run)
        found[run.container, run.number] = [line.text for line in log.read_new()]
        log.close()
    return found


async def test_running_pods_are_adopted_followed_and_ended(upgrade: Upgrade) -> None:
    node, names = upgrade.node, shapes(upgrade.level, running=True)
    await upgrade.start(names)

    await upgrade.up()

    for name in names:
        pod = await node.until(name, lambda pod, name=name: has_arrived(pod, SHAPES[name]) or has_failed(pod))  # type: ignore[misc]
        assert comparable(pod) == comparable(upgrade.load(name, "object")), name
        for container, number, lines in logs_in(upgrade.load(name, "files")):
            if SHAPES[name].ready and number == 0:
                await eventually(lambda: node.log(pod, container), lambda text, lines=lines: text.startswith(lines))  # type: ignore[misc]  # noqa: B023
    await commands_run(node, (await node.pod("one-container")) or {})
    assert (upgrade.directory / "shared/hooks").read_text() == "post\n"
    assert (upgrade.directory / "shared/claim/file").read_text() == "written\n"
    assert (upgrade.directory / "shared/nfs/file").read_text() == "written\n"

    for name in names:
        await node.delete(name)
    for name in names:
        await node.until_gone(name)

    assert (upgrade.directory / "shared/hooks").read_text() == "post\npre\n"
    records = await eventually(upgrade.records, lambda found: all(record.removed for record in found.values()))
    assert sorted(records) == sorted(names)
    for name in names:
        texts = log_texts(records[name])
        if name not in {"always", "stdin"}:
            stopped = [lines[-1] for (container, _), lines in texts.items() if container not in not_stopped(name)]
            assert {line.strip() for line in stopped} == {"stopped"}, name


def has_failed(pod: Object) -> bool:
    return bool((pod.get("status") or {}).get("phase") == "Failed")


def not_stopped(shape: str) -> set[str]:
    """Containers that end by themselves, or without a word."""
    return {"first-init", "second-init", *(["main"] if shape == "probes-and-hooks" else [])}


def logs_in(files: list[Object]) -> list[tuple[str, int, str]]:
    """Container, number of the run and text, from the records of a log."""
    found = []
    for entry in files:
        if match := re.fullmatch(r"logs/([^/]+)/(\d+)\.log", entry["path"]):
            lines = [line.split(" ", 3)[3] for line in entry["text"].split("\n")[:-1]]
            found.append((match[1], int(match[2]), "".join(f"{line}\n" for line in lines)))
    return found


async def commands_run(node: Node, pod: Object) -> None:
    streams = NodeStreams(node.directory)
    session = await streams.exec(pod, "main", StreamOptions(command=("sh", "-c", "exit 3"), stdout=True))
    try:
        assert await session.wait() == 3
    finally:
        session.close()


async def test_pods_that_have_ended_are_read_as_they_ended(upgrade: Upgrade) -> None:
    node, names = upgrade.node, shapes(upgrade.level, running=False)
    for name in names:
        upgrade.restore(name, await upgrade.create(name))

    await upgrade.up()

    for name in names:
        pod = await node.until_phase(name, SHAPES[name].phase)
        golden = upgrade.load(name, "object")
        assert comparable(pod) == comparable(golden), name
        last: dict[str, tuple[int, str]] = {}
        for container, number, text in logs_in(upgrade.load(name, "files")):
            last[container] = max((number, text), last.get(container, (number, text)))
        for container, (_, text) in last.items():
            assert await node.log(pod, container) == text
    records = await upgrade.records()
    check_records(records, upgrade.level)
    for name in names:
        await node.delete(name)
        await node.until_gone(name)
    removed = await eventually(upgrade.records, lambda found: all(record.removed for record in found.values()))
    assert log_texts(removed["fails-once"]) == {("main", 0): ["first"], ("main", 1): ["again"]}


def check_records(records: dict[str, PodRecord], level: str) -> None:
    runs = {
        name: [(run.container, run.number, run.exit_code, run.reason, run.message) for run in record.runs]
        for name, record in records.items()
    }
    assert runs == {
        "succeeds": [("init", 0, 0, "Completed", ""), ("main", 0, 0, "Completed", "")],
        "fails-once": [("main", 0, 3, "Error", ""), ("main", 1, 0, "Completed", "")],
        "termination-message": [("main", 0, 4, "Error", "because\n"), ("logged", 0, 5, "Error", "last words\n")],
    }
    assert log_texts(records["succeeds"]) == {("init", 0): ["prepared"], ("main", 0): ["one", "two"]}
    assert {record.labels["app"] for record in records.values()} == {"digits"}
    assert not any(run.stopped or run.missing_image for record in records.values() for run in record.runs)
    main = records["succeeds"].runs[1]
    assert main.started_at is not None
    assert main.finished_at is not None
    assert 0 < main.finished_at - main.started_at < 60
    files = {(file.path, file.size, file.volume) for file in records["succeeds"].private_files}
    in_volume = ("/mnt/v/file", 10, "v")
    assert files == ({("/var/tmp/kept", 5, ""), in_volume} if level == "overlay" else {in_volume})
    for path, _, _ in files:
        (found,) = find_pod_files(records["succeeds"].directory, path)
        assert found.source.read_text() in {"kept\n", "in-volume\n"}


async def test_pods_that_end_run_to_the_same_end(upgrade: Upgrade) -> None:
    node, names = upgrade.node, shapes(upgrade.level, running=False)
    await upgrade.start(names)

    await upgrade.up()

    for name in names:
        pod = await node.until_phase(name, SHAPES[name].phase)
        assert comparable(pod) == comparable(upgrade.load(name, "object")), name
    check_records(await upgrade.records(), upgrade.level)


async def test_a_pod_whose_supervisor_has_ended_meanwhile_is_started_again(upgrade: Upgrade) -> None:
    directory = await upgrade.create("always")
    upgrade.restore("always", directory)
    before = upgrade.load("always", "state")["containers"][0]["restarts"]

    await upgrade.up()

    def has_restarted(pod: Object) -> bool:
        return any(one["restartCount"] > before for one in (pod.get("status") or {}).get("containerStatuses") or ())

    await upgrade.node.until("always", has_restarted)
    (record,) = (await upgrade.records()).values()
    assert [run.number for run in record.runs][: before + 2] == list(range(before + 2))


@pytest.mark.parametrize(
    ("level", "shape"), [(level, name) for level in LEVELS for name in SHAPES if level in SHAPES[name].levels]
)
def test_a_recorded_state_has_the_status_that_was_reported(level: str, shape: str) -> None:
    pod, state, config = (load(level, shape, name, {}) for name in ("object", "state", "pod"))
    reported = pod["status"]
    containers = [*config["initContainers"], *config["containers"]]

    found = pod_status(
        {**pod, "status": {}},
        address=reported["podIP"],
        host_address=reported["hostIP"],
        state=state,
        image_ids={one["name"]: one["imageID"] for one in containers if "imageID" in one},
        now=datetime.now(UTC),
    )

    assert comparable({**pod, "status": {**found, "qosClass": reported.get("qosClass")}}) == comparable(
        {**pod, "status": {**reported, "qosClass": reported.get("qosClass")}}
    )


@pytest.mark.parametrize("level", LEVELS)
def test_a_gpu_stays_with_the_pod_that_has_it(level: str) -> None:
    config = load(level, "devices", "pod", {})
    allocations = GpuAllocations([GPU])

    allocations.restore("u", config["containers"])

    other = {"metadata": {"uid": "other"}, "spec": SHAPES["devices"].spec}
    assert not allocations.allocate(other)
    allocations.release("u")
    assert allocations.allocate(other)
    assert config["containers"][0]["devices"] == list(GPU.nodes)
