"""What pods and the machine use, measured from /proc."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainwright.cluster.node.resource_usage import NodeUsage

BUSY = "while True: pass"
IDLE = "held = bytearray(64 << 20); print(flush=True); input()"


@contextmanager
def running(program: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def record(node: Path, uid: str, **containers: int) -> None:
    """As the supervisor does it."""
    directory = node / "pods" / uid
    directory.mkdir(parents=True)
    statuses = [{"name": name, "state": {"running": {}}, "process": pid} for name, pid in containers.items()]
    (directory / "state.json").write_text(json.dumps({"initContainers": [], "containers": statuses}))


async def test_containers_are_measured_one_by_one(tmp_path: Path) -> None:
    with running(BUSY) as busy, running(IDLE) as idle:
        assert idle.stdout is not None
        idle.stdout.readline()
        record(tmp_path, "one", busy=busy.pid, idle=idle.pid)
        usage = NodeUsage(tmp_path)

        first = await usage.read(["one", "not-here"])
        again = await usage.read(["one"])

    assert first.pods.keys() == {"one"}
    for sample in (first, again):
        pod = sample.pods["one"]
        assert pod["busy"].cpu > max(0.01, 2 * pod["idle"].cpu)  # little, if others are busy too
        assert pod["idle"].memory > 64 << 20
        assert pod["busy"].memory < 64 << 20
        assert sample.node.cpu >= 0.1
        assert sample.node.memory > pod["idle"].memory
        assert sample.window >= 1


async def test_children_that_have_ended_count(tmp_path: Path) -> None:
    program = """
import os
while True:
    if os.fork() == 0:
        sum(range(3_000_000))
        os._exit(0)
    os.wait()
"""
    with running(program) as process:
        record(tmp_path, "one", main=process.pid)
        before = own_seconds(process.pid)
        sample = await NodeUsage(tmp_path).read(["one"])
        own = own_seconds(process.pid) - before

    assert sample.pods["one"]["main"].cpu > 2 * own / sample.window


def own_seconds(pid: int) -> float:
    """The CPU time of a process without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
