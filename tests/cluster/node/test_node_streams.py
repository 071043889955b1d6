"""Exec and attach in real pods under real supervisors: as root and as an ordinary user, in both sandboxes."""

import asyncio
import json
import os
import re
import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.supervised_pods import SupervisedPod, container, processes_with
from tests.support.waiting import eventually, wait_until
from trainwright.cluster.node.node_streams import AttachSession, ExecSession, NodeStreams
from trainwright.cluster.node.pod_processes import process_trees, running_containers
from trainwright.cluster.node.supervisor.files import SESSION_SOCKET
from trainwright.objects.kinds.pod_subresources import StreamOptions, StreamUnavailable

pytestmark = pytest.mark.thorough("root-overlay", "root-plain", "ordinary-plain", sample=8)

SLEEP = "exec sleep 600"
POD = {"metadata": {"uid": "uid", "name": "pod", "namespace": "default"}}


def streams_of(pod: SupervisedPod, name: str = "main") -> NodeStreams:
    pod.until(lambda pod: "running" in pod.container(name)["state"])
    return NodeStreams(pod.directory.parents[1])


async def collect(session: ExecSession | AttachSession) -> tuple[bytes, bytes]:
    """All of its output and its errors."""
    found: dict[bool, list[bytes]] = {False: [], True: []}

    async def read(output: Any) -> None:
        async for one in output:
            found[one.is_error].append(one.data)

    await asyncio.gather(*map(read, session.outputs))
    return b"".join(found[False]), b"".join(found[True])


async def run(
    pod: SupervisedPod, *command: str, stdin: bytes | None = None, tty: bool = False, name: str = "main"
) -> tuple[int, bytes, bytes]:
    """Exit code, output and errors of a command."""
    options = StreamOptions(command=command, stdin=stdin is not None, stdout=True, stderr=not tty, tty=tty)
    session = await streams_of(pod, name).exec(POD, name, options)
    try:
        async with asyncio.timeout(60):
            reading = asyncio.create_task(collect(session))
            if stdin is not None:
                await session.write(stdin)
                session.close_stdin()
            code = await session.wait()
            return code, *(await reading)
    finally:
        session.close()


async def test_command_has_the_environment_and_the_directory_of_its_container(runner: Any) -> None:
    where = str(runner.shared)
    mounts = [{"source": where, "target": where, "readOnly": False}]
    with runner.run(container(SLEEP, env={"GREETING": "hello"}, cwd=where, mounts=mounts)) as pod:
        found = await run(pod, "sh", "-c", "echo $GREETING; pwd; echo problem >&2")

    assert found == (0, f"hello\n{where}\n".encode(), b"problem\n")


async def test_terminal_session_ends_with_its_command_and_has_all_output(plain: Any) -> None:
    with plain.run(container(SLEEP)) as pod:
        for _ in range(5):
            found = await run(pod, "sh", "-c", "trap '' HUP; sleep 60 & seq 1000; exit 4", tty=True)
            assert found == (4, "".join(f"{number}\r\n" for number in range(1, 1001)).encode(), b"")


@pytest.mark.parametrize(("script", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)])
async def test_exit_code_of_a_command(plain: Any, script: str, code: int) -> None:
    with plain.run(container(SLEEP)) as pod:
        assert await run(pod, "sh", "-c", script) == (code, b"", b"")


async def test_stdin_reaches_the_command_until_it_is_closed(runner: Any) -> None:
    data = os.urandom(300_000)

    with runner.run(container(SLEEP)) as pod:
        found = await run(pod, "cat", stdin=data)

    assert found == (0, data, b"")


async def test_command_that_does_not_exist(runner: Any) -> None:
    with runner.run(container(SLEEP)) as pod:
        with pytest.raises(StreamUnavailable, match=r'exec: "nosuch": executable file not found in \$PATH'):
            await run(pod, "nosuch")
        assert await run(pod, "true") == (0, b"", b"")


async def test_command_sees_the_files_and_processes_of_its_container(overlay: Any) -> None:
    scripts = ("echo first >/tmp/name", "echo second >/tmp/name")
    containers = [container(f"{script}; {SLEEP}", name=name) for script, name in zip(scripts, "ab", strict=True)]
    with overlay.run(*containers) as pod:
        pod.until(lambda pod: all("running" in pod.container(name)["state"] for name in "ab"))
        for name, text in (("a", b"first\n"), ("b", b"second\n")):
            await eventually(lambda: run(pod, "cat", "/tmp/name", name=name), lambda found: found[1] == text)  # noqa: B023
        _, output, _ = await run(pod, "sh", "-c", "hostname; cat /proc/1/cmdline | tr '\\0' ' '", name="a")

    hostname, init = output.decode().splitlines()
    assert hostname == "pod"
    assert "supervise.py" in init


async def test_files_that_a_command_writes_are_the_container_s(overlay: Any) -> None:
    with overlay.run(container("while ! [ -f /tmp/go ]; do sleep 0.01; done; cat /tmp/go")) as pod:
        await run(pod, "sh", "-c", "echo gone >/tmp/new; mv /tmp/new /tmp/go")
        pod.wait()

    assert pod.output() == ["gone"]
    assert not Path("/tmp/go").exists()


async def start_and_stop(pod: SupervisedPod, script: str) -> tuple[bytes, bytes]:
    """All output of a command and its errors. The pod is stopped when the command has printed something."""
    options = StreamOptions(command=("sh", "-c", script), stdout=True, stderr=True)
    session = await streams_of(pod).exec(POD, "main", options)
    try:
        async with asyncio.timeout(60):
            first = await anext(aiter(session.outputs[0]))
            pod.stop()
            rest, errors = await collect(session)
        return first.data + rest, errors
    finally:
        session.close()


SAVES = "trap 'sleep 0.1; echo saved; exit 5' TERM; echo started; while :; do sleep 0.01; done"


@pytest.mark.parametrize("script", [SAVES, f'sh -c "{SAVES}"; true'], ids=["command", "child"])
async def test_command_may_save_its_state_when_a_program_that_only_waits_is_stopped(runner: Any, script: str) -> None:
    with runner.run(container(SLEEP), grace=60) as pod:
        assert (await start_and_stop(pod, script))[0] == b"started\nsaved\n"
        pod.wait()
    assert pod.container()["state"]["terminated"]["exitCode"] == 143


async def test_program_that_handles_sigterm_does_not_wait_for_commands(runner: Any) -> None:
    with runner.run(container(SAVES), grace=60) as pod:
        found, _ = await start_and_stop(pod, "trap '' TERM; echo started; while :; do sleep 0.01; done")
        pod.wait()
    assert found == b"started\n"
    assert pod.output() == ["started", "saved"]


async def test_terminal_echoes_resizes_and_sends_signals(runner: Any) -> None:
    script = (
        "trap 'echo interrupted; sleep 0.2; exit 3' INT; test -t 0 && echo terminal; stty size; "
        "while :; do sleep 0.05; done"
    )
    options = StreamOptions(command=("sh", "-c", script), stdin=True, stdout=True, tty=True)
    seen = b""
    with runner.run(container(SLEEP)) as pod:
        session = await streams_of(pod).exec(POD, "main", options)
        session.resize(100, 33)
        (output,) = session.outputs
        async with asyncio.timeout(60):
            async for one in output:
                seen += one.data
                if b"33 100" in seen or b"0 0" in seen:
                    break
            await session.write(b"\x03")
            async for one in output:
                seen += one.data
            code = await session.wait()
        session.close()

    assert b"terminal\r\n" in seen
    assert b"interrupted\r\n" in seen
    assert code == 3


async def test_command_ends_with_its_container(runner: Any) -> None:
    marker = f"{1000 + os.getpid()}.{time.monotonic_ns()}"
    main = container("while ! [ -f go ]; do sleep 0.01; done", cwd=str(runner.shared))
    main["mounts"] = [{"source": str(runner.shared), "target": str(runner.shared), "readOnly": False}]
    with runner.run(main, container(SLEEP, name="other")) as pod:
        running = asyncio.create_task(run(pod, "sh", "-c", f"sleep {marker} & wait"))
        await eventually(lambda: asyncio.to_thread(processes_with, marker), bool)
        (runner.shared / "go").touch()
        code, _, _ = await running

        assert code == 137
        wait_until(lambda: not processes_with(marker))
        assert "running" in pod.container("other")["state"]


async def test_command_is_among_the_processes_of_its_pod(runner: Any) -> None:
    """mpirun starts its processes so: stacks and resource usage must have them."""
    marker = f"{2000 + os.getpid()}.{time.monotonic_ns()}"
    with runner.run(container(SLEEP), grace=0) as pod:
        running = asyncio.create_task(run(pod, "sh", "-c", f"sleep {marker} & wait"))
        await eventually(lambda: asyncio.to_thread(processes_with, marker), bool)
        [main] = running_containers(pod.directory)

        async def commands_with_exec() -> list[tuple[str, ...]]:
            return [one.command for one in process_trees([main.pid], with_exec=True)[main.pid]]

        await eventually(commands_with_exec, lambda found: ("sleep", marker) in found)
        without = process_trees([main.pid])[main.pid]
        pod.stop()
        await running

    assert [one.command for one in without] == [("sleep", "600")]


async def test_command_ends_with_its_pod(runner: Any) -> None:
    with runner.run(container(SLEEP), grace=0) as pod:
        running = asyncio.create_task(run(pod, "sleep", "600"))
        await eventually(lambda: asyncio.to_thread(pod.container), lambda found: "running" in found["state"])
        await run(pod, "true")  # the first one runs now
        pod.stop()
        code, _, _ = await running
        pod.wait()

    assert code == 137
    assert not (pod.directory / SESSION_SOCKET).exists()


async def test_session_needs_a_running_container(plain: Any) -> None:
    with plain.run(container("exit 0"), container(SLEEP, name="other")) as pod:
        pod.until(lambda pod: "terminated" in pod.container()["state"] and "running" in pod.container("other")["state"])
        streams = NodeStreams(pod.directory.parents[1])
        options = StreamOptions(command=("true",), stdout=True)
        session = await streams.exec(POD, "main", options)
        with pytest.raises(StreamUnavailable, match=re.escape('container not found ("main")')):
            await session.wait()
        session.close()
        with pytest.raises(StreamUnavailable, match="container main not found in pod pod_default"):
            await streams.attach(POD, "main", StreamOptions(stdout=True))


async def test_prepared_command_runs_when_its_client_says_so_and_without_the_agent(runner: Any) -> None:
    with runner.run(container(SLEEP)) as pod:
        prepared = await streams_of(pod).prepare_exec(POD, "main", ["sh", "-c", "echo out; echo bad >&2; exit 3"])
        session, stdout, stderr = (os.dup(descriptor) for descriptor in prepared.descriptors)
        prepared.close()  # as if the agent was killed
        with socket.socket(fileno=session) as client:
            client.setblocking(True)
            client.send(b"start")
            outputs = [await asyncio.to_thread(Path(f"/dev/fd/{one}").read_bytes) for one in (stdout, stderr)]
            assert outputs == [b"out\n", b"bad\n"]
            assert await asyncio.to_thread(client.recv, 100) == b'{"exit": 3}'
        for descriptor in (stdout, stderr):
            os.close(descriptor)


async def test_prepared_command_whose_client_has_gone_never_runs(runner: Any) -> None:
    where = str(runner.shared)
    mounts = [{"source": where, "target": where, "readOnly": False}]
    with runner.run(container(SLEEP, cwd=where, mounts=mounts)) as pod:
        streams = streams_of(pod)
        for _ in range(100):  # more than there may be at the same time
            (await streams.prepare_exec(POD, "main", ["touch", "started"])).close()
        assert await run(pod, "ls") == (0, b"", b"")


async def test_pod_survives_a_prepared_command_without_its_streams(plain: Any) -> None:
    """A supervisor without free descriptors gets none of those that are sent to it."""
    request = {"prepare": {"container": "main", "argv": ["true"], "tty": False}}
    with plain.run(container(SLEEP)) as pod:
        streams_of(pod)
        directory = os.open(pod.directory, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(f"/proc/self/fd/{directory}/{SESSION_SOCKET}")
            client.send(json.dumps(request).encode())
            client.send(b"start")
            with suppress(ConnectionError):
                while await asyncio.to_thread(client.recv, 100):
                    pass
        os.close(directory)
        assert await run(pod, "echo", "on") == (0, b"on\n", b"")


async def test_command_has_its_three_streams_alone(runner: Any) -> None:
    with runner.run(container(SLEEP)) as pod:
        code, shown, _ = await run(pod, "sh", "-c", "ls /proc/$$/fd")
    assert (code, shown.split()) == (0, [b"0", b"1", b"2"])


@pytest.mark.parametrize("message", [b"[]", b"1", b"[" * 100_000, b'{"key": []}', b"\xff"])
async def test_pod_survives_messages_that_are_no_requests(plain: Any, message: bytes) -> None:
    with plain.run(container(SLEEP)) as pod:
        streams_of(pod)
        directory = os.open(pod.directory, os.O_RDONLY)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(f"/proc/self/fd/{directory}/{SESSION_SOCKET}")
            client.send(message)
            with suppress(ConnectionError):
                assert await asyncio.to_thread(client.recv, 100) == b""
        os.close(directory)
        assert await run(pod, "echo", "on") == (0, b"on\n", b"")


async def test_command_cannot_be_prepared_in_a_container_that_has_ended(plain: Any) -> None:
    with plain.run(container("exit 0"), container(SLEEP, name="other")) as pod:
        streams = streams_of(pod, "other")
        pod.until(lambda pod: "terminated" in pod.container()["state"])
        with pytest.raises(StreamUnavailable, match=re.escape('container not found ("main")')):
            await streams.prepare_exec(POD, "main", ["true"])


async def test_processes_of_a_pod_cannot_open_sessions(overlay: Any) -> None:
    shared = overlay.shared
    program = (
        "import socket; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.connect('sessions.sock');"
        's.send(b\'{"attach": {"container": "main", "stdin": false}}\'); print(s.recv(100))'
    )
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or os.path.realpath(overlay.user.python)
    with overlay.run(container(SLEEP, mounts=[{"source": str(shared), "target": "/data", "readOnly": False}])) as pod:
        streams_of(pod)
        os.link(pod.directory / SESSION_SOCKET, shared / SESSION_SOCKET)  # as if the isolation had failed
        inside = await run(pod, "sh", "-c", f'cd /data && {python} -I -S -c "{program}"')
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as outside:
            outside.connect(str(shared / SESSION_SOCKET))
            outside.send(b'{"attach": {"container": "main", "stdin": false}}')
            answer = outside.recv(100)

    assert inside[1] == b"b''\n" or b"BrokenPipeError" in inside[2] or b"ConnectionResetError" in inside[2]
    assert b'"run": 0' in answer


async def test_attached_session_gets_what_the_container_prints(runner: Any) -> None:
    script = "echo before; while read line; do echo got $line; printf 'no end'; echo bad >&2; done; echo last"
    with runner.run(container(script, stdin=True, stdinOnce=True)) as pod:
        session = await streams_of(pod).attach(POD, "main", StreamOptions(stdin=True, stdout=True, stderr=True))
        reading = asyncio.create_task(collect(session))
        async with asyncio.timeout(60):
            await session.write(b"one\n")
            session.close_stdin()
            output = await reading
            assert await session.wait() == 0
        session.close()
        pod.wait()

    assert output == (b"before\ngot one\nno endlast\n", b"bad\n")


async def test_stdin_stays_open_for_the_next_session_without_stdin_once(plain: Any) -> None:
    options = StreamOptions(stdin=True, stdout=True)
    with plain.run(container("read a; echo $a; read b; echo $b", stdin=True)) as pod:
        streams = streams_of(pod)
        for text in (b"one\n", b"two\n"):
            session = await streams.attach(POD, "main", options)
            await session.write(text)
            session.close()
        pod.wait()

    assert pod.output() == ["one", "two"]


async def test_container_with_a_terminal(runner: Any) -> None:
    script = "test -t 0 && test -t 1 && echo $TERM; read answer; echo answer $answer"
    with runner.run(container(script, stdin=True, tty=True)) as pod:
        session = await streams_of(pod).attach(POD, "main", StreamOptions(stdin=True, stdout=True, tty=True))
        reading = asyncio.create_task(collect(session))
        async with asyncio.timeout(60):
            session.resize(80, 25)
            await eventually(lambda: asyncio.to_thread(pod.output), lambda lines: "xterm" in lines)
            await session.write(b"yes\n")
            output, _ = await reading
        session.close()
        pod.wait()

    assert output == b"xterm\r\nyes\r\nanswer yes\r\n"
    assert pod.output() == ["xterm", "yes", "answer yes"]


async def test_attached_session_without_stdin_starts_with_the_next_output(plain: Any) -> None:
    with plain.run(
        container("echo before; while ! [ -f go ]; do sleep 0.01; done; echo after", cwd=str(plain.shared))
    ) as pod:
        pod.until(lambda pod: pod.output() == ["before"])
        session = await streams_of(pod).attach(POD, "main", StreamOptions(stdout=True, stderr=True))
        reading = asyncio.create_task(collect(session))
        (plain.shared / "go").touch()
        async with asyncio.timeout(60):
            output, _ = await reading
        session.close()

    assert output == b"after\n"
