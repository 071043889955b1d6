"""exec and cp: a command in a running container."""

import asyncio
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.node.namespace import NodeNamespace, container
from trainwright.kube.client.errors import ApiError
from trainwright.objects import Object

SLEEPS = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"
EMPTY = {"name": "v", "emptyDir": {}}


async def running(node: NodeNamespace, *containers: Object, **spec: Any) -> None:
    await node.pod("p", *(containers or [container(SLEEPS)]), **spec)
    await node.until_ready("p")


async def test_output_and_errors_of_a_command_are_apart(node: NodeNamespace) -> None:
    await running(node)
    assert await node.kubectl("exec", "p", "--", "sh", "-c", "echo out; echo err >&2") == (0, "out\n", "err\n")


@pytest.mark.parametrize("code", [1, 7, 130])
async def test_exit_code_of_a_command(node: NodeNamespace, code: int) -> None:
    await running(node)
    found, _, error = await node.kubectl("exec", "p", "--", "sh", "-c", f"exit {code}")
    assert (found, error) == (code, f"command terminated with exit code {code}\n")


async def test_command_that_is_killed_exits_with_128_and_its_signal(node: NodeNamespace) -> None:
    await running(node)
    result = await node.exec("p", "sh", "-c", "kill -9 $$")
    assert result.exit_code == 137


async def test_stdin_ends_when_the_client_closes_it(node: NodeNamespace) -> None:
    await running(node)
    data = os.urandom(200_000).hex()
    code, output, _ = await node.kubectl("exec", "-i", "p", "--", "cat", stdin=data.encode())
    assert code == 0
    assert output == data


async def test_command_has_the_environment_and_the_directory_of_the_container(node: NodeNamespace) -> None:
    await running(node, container(SLEEPS, env=[{"name": "GREETING", "value": "hello"}], workingDir="/usr"))
    result = await node.exec("p", "sh", "-c", "echo $GREETING; pwd")
    assert result.stdout == b"hello\n/usr\n"


@pytest.mark.only("overlay", "kubelet")
async def test_command_sees_the_files_and_processes_of_its_own_container(node: NodeNamespace) -> None:
    pair = [container(f"echo {name} >/tmp/name; exec sleep 600", name=name) for name in ("one", "two")]
    await running(node, *pair)
    for name in ("one", "two"):
        script = "until test -s /tmp/name; do sleep 0.05; done; cat /tmp/name; hostname"
        result = await node.exec("p", "sh", "-c", script, container=name)
        assert result.stdout.decode() == f"{name}\np\n"


async def test_command_that_does_not_exist_is_an_error(node: NodeNamespace) -> None:
    await running(node)
    code, output, error = await node.kubectl("exec", "p", "--", "nosuch")
    assert code != 0
    assert output == ""
    assert "nosuch" in error
    with pytest.raises(ApiError, match="executable file not found"):
        await node.exec("p", "nosuch")


async def test_container_that_does_not_exist_is_an_error(node: NodeNamespace) -> None:
    await running(node)
    with pytest.raises(ApiError, match="container other is not valid for pod p"):
        await node.exec("p", "true", container="other")


async def test_pod_that_is_not_running_is_an_error(node: NodeNamespace) -> None:
    await node.pod("p", container("exit 0"))
    await node.until_phase("p", "Succeeded")
    with pytest.raises(ApiError, match="container"):
        await node.exec("p", "true")


async def test_terminal_has_a_size_and_echoes(node: NodeNamespace) -> None:
    await running(node)
    seen = b""
    terminal = node.client.start_exec("p", ["sh"], namespace=node.name, stdin=True, tty=True)
    async with asyncio.timeout(60), terminal as session:
        await session.resize(101, 33)
        await session.write(b"test -t 0 && echo 'term'inal; stty size; exit 5\n")
        async for output in session.output():
            seen += output.data
    assert b"terminal\r\n" in seen
    assert b"33 101" in seen
    assert session.exit_code == 5


async def test_interrupt_from_the_terminal_reaches_the_command(node: NodeNamespace) -> None:
    await running(node)
    script = "trap 'echo interrupted; exit 3' INT; echo started; while :; do sleep 0.05; done"
    seen = b""
    terminal = node.client.start_exec("p", ["sh", "-c", script], namespace=node.name, stdin=True, tty=True)
    async with asyncio.timeout(60), terminal as session:
        async for output in session.output():
            if b"started" in output.data:
                await session.write(b"\x03")
            seen += output.data
    assert b"interrupted" in seen
    assert session.exit_code == 3


async def test_command_ends_with_its_container(node: NodeNamespace) -> None:
    await running(node)
    command = node.client.start_exec("p", ["sh", "-c", "echo started; exec sleep 600"], namespace=node.name)
    async with asyncio.timeout(60), command as session:
        async for output in session.output():
            assert output.data == b"started\n"
            await node.delete("p")
    assert session.exit_code == 137


@pytest.mark.only("overlay", "kubelet")  # at plain tar calls the files of a volume by their path on this machine
async def test_kubectl_cp_copies_to_and_from_a_pod(node: NodeNamespace) -> None:
    await running(node, container(SLEEPS, volumeMounts=[{"name": "v", "mountPath": "/v"}]), volumes=[EMPTY])
    with TemporaryDirectory() as directory:
        sent, received = Path(directory) / "sent", Path(directory) / "received"
        (sent / "below").mkdir(parents=True)
        (sent / "below" / "data").write_bytes(os.urandom(100_000))
        assert (await node.kubectl("cp", str(sent), "p:/v/copy"))[0] == 0
        assert (await node.kubectl("cp", "p:/v/copy", str(received)))[0] == 0
        assert (received / "below" / "data").read_bytes() == (sent / "below" / "data").read_bytes()


async def test_the_output_of_terminals_is_complete_when_many_end_together(node: NodeNamespace) -> None:
    await running(node)
    commands = (node.client.exec("p", ["seq", "1", "3000"], namespace=node.name, tty=True) for _ in range(8))
    for result in await asyncio.gather(*commands):
        assert result.exit_code == 0
        assert result.stdout.decode().split() == [str(number) for number in range(1, 3001)]


async def test_a_command_finds_the_volumes_of_its_container(node: NodeNamespace) -> None:
    await running(node, container(SLEEPS, volumeMounts=[{"name": "v", "mountPath": "/v"}]), volumes=[EMPTY])
    await node.exec("p", "sh", "-c", "echo kept > /v/file")
    assert (await node.exec("p", "cat", "/v/file")).stdout == b"kept\n"
