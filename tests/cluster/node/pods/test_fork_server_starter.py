"""The fork server: it starts supervisors that outlive it, and is replaced when it ends."""

import asyncio
import json
import os
import select
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.cluster.addresses import locked_addresses
from tests.support.cluster.supervised_pods import container, end_supervisors, processes_with
from tests.support.waiting import eventually
from trainwright.cluster.node.node_streams import NodeStreams
from trainwright.cluster.node.pods.fork_server_starter import ForkServer
from trainwright.cluster.node.pods.pod_directory import PodDirectory, SupervisorProcess
from trainwright.objects.kinds.pod_subresources import StreamUnavailable

UID = "12345678-1234-1234-1234-123456789012"


@asynccontextmanager
async def fork_server(
    node: Path, python: str = sys.executable, session_secret: bytes = b""
) -> AsyncIterator[ForkServer]:
    with locked_addresses() as lock:
        server = ForkServer(python, node, session_secret, lock.mark)
        try:
            yield server
        finally:
            server.close()
            end_supervisors(node)


def make_pod(node: Path, script: str, uid: str = UID) -> PodDirectory:
    directory = PodDirectory(node / "pods" / uid)
    directory.create()
    settings = {"sandbox": "plain", "ownUsers": False, "memoryVolumes": [], "hidden": []}
    identity = {"uid": uid, "namespace": "default", "name": "pod", "hostname": "pod", "address": "127.64.0.1"}
    backoff = {"initial": 0.05, "limit": 0.1, "reset": 600.0}
    containers = {"initContainers": [], "containers": [container(script)]}
    rest = {"grace": 10, "restartPolicy": "Never", "backoff": backoff}
    (directory.path / "pod.json").write_text(json.dumps(settings | identity | containers | rest))
    return directory


def log_of(directory: PodDirectory) -> list[str]:
    lines = (directory.path / "logs/main/0.log").read_text().splitlines()
    return [line.split(" ", 3)[3] for line in lines]


async def ended(supervisor: SupervisorProcess) -> None:
    async def readable() -> bool:
        return bool(select.select([supervisor.descriptor], [], [], 0)[0])

    await eventually(readable, bool)
    supervisor.close()


async def fork_servers(node: Path) -> list[int]:
    return await asyncio.to_thread(processes_with, f"--fork-server={node}")


async def running(directory: PodDirectory) -> bool:
    state = directory.state
    return state is not None and "running" in state["containers"][0]["state"]


async def test_supervisor_has_the_command_line_of_its_pod_and_a_session_of_its_own(tmp_path: Path) -> None:
    pod = make_pod(tmp_path, "exec sleep 600")
    async with fork_server(tmp_path) as server:
        supervisor = await server.start_supervisor(pod)
        await eventually(lambda: running(pod), bool)

        words = Path(f"/proc/{supervisor.identity.pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        assert words[-2].endswith(b"/supervise.py")
        assert words[-1] == os.fsencode(pod.path)
        assert os.getsid(supervisor.identity.pid) == supervisor.identity.pid
        supervisor.close()


async def test_program_of_a_pod_inherits_no_descriptor(tmp_path: Path) -> None:
    pod = make_pod(tmp_path, "readlink /proc/self/fd/* 2>/dev/null | grep -v '^pipe:\\|^/proc/\\|^/dev/null' || true")
    async with fork_server(tmp_path) as server:
        await ended(await server.start_supervisor(pod))

    assert log_of(pod) == []


async def test_pods_outlive_the_fork_server_and_the_next_one_takes_its_place(tmp_path: Path) -> None:
    first, second = make_pod(tmp_path, "exec sleep 600"), make_pod(tmp_path, "echo second", UID.replace("1", "2"))
    async with fork_server(tmp_path) as server:
        supervisor = await server.start_supervisor(first)
        await eventually(lambda: running(first), bool)
        (pid,) = await fork_servers(tmp_path)
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda: fork_servers(tmp_path), lambda found: not found)

        await ended(await server.start_supervisor(second))

        assert log_of(second) == ["second"]
        assert supervisor.identity.alive
        supervisor.close()


async def test_fork_server_ends_with_the_agent(tmp_path: Path) -> None:
    async with fork_server(tmp_path) as server:
        server.start()
        await eventually(lambda: fork_servers(tmp_path), lambda found: len(found) == 1)
    await eventually(lambda: fork_servers(tmp_path), lambda found: not found)


async def test_python_that_cannot_run_supervisors_is_an_error(tmp_path: Path) -> None:
    pod = make_pod(tmp_path, "echo never")
    async with fork_server(tmp_path, python="/bin/false") as server:
        with pytest.raises(OSError, match="the fork server of supervisors ended: unknown reason"):
            await server.start_supervisor(pod)


@pytest.mark.parametrize(("secret", "answers"), [(b"that of the node", True), (b"another", False), (b"", False)])
async def test_sessions_are_opened_with_the_key_of_the_pod_alone(tmp_path: Path, secret: bytes, answers: bool) -> None:
    """Processes of other pods look like the agent: they have no pid in this one, and the same user."""
    pod = make_pod(tmp_path, "exec sleep 600")
    obj = {"metadata": {"name": "p", "namespace": "ns", "uid": pod.path.name}}
    async with fork_server(tmp_path, session_secret=b"that of the node") as server:
        supervisor = await server.start_supervisor(pod)
        await eventually(lambda: running(pod), bool)
        streams = NodeStreams(tmp_path, secret)
        if answers:
            session = await streams.prepare_exec(obj, "main", ["true"])
            session.close()
        else:
            with pytest.raises(StreamUnavailable):
                await streams.prepare_exec(obj, "main", ["true"])
        supervisor.close()
