"""port-forward: connections to ports of a pod."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.node.namespace import NodeNamespace, container, python

SERVER = """
import socket, threading
def serve(connection):
    with connection:
        while data := connection.recv(65536):
            connection.sendall(HEAD + data)
listener = socket.create_server((ADDRESS, 0))
print("port", listener.getsockname()[1])
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
"""


async def server(node: NodeNamespace, name: str = "p", *, address: str = "127.0.0.1", head: bytes = b"") -> int:
    """A pod that echoes what it gets; returns its port."""
    program = SERVER.replace("ADDRESS", repr(address)).replace("HEAD", repr(head))
    await node.pod(name, python(program))
    log = await node.until_log(name, "port ")
    return int(log.split()[1])


@asynccontextmanager
async def forwarding(
    node: NodeNamespace, name: str, port: int
) -> AsyncIterator[tuple[int, asyncio.subprocess.Process]]:
    """The local port, and kubectl."""
    process = await node.start_kubectl("port-forward", name, f":{port}")
    assert process.stdout is not None
    try:
        async with asyncio.timeout(60):
            line = (await process.stdout.readline()).decode()
        found = re.match(r"Forwarding from 127.0.0.1:(\d+) -> ", line)
        assert found, line + (await process.communicate())[1].decode()
        yield int(found[1]), process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def ask(port: int, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    async with asyncio.timeout(60):
        answer = await reader.readexactly(len(data))
    writer.close()
    return answer


async def test_connection_reaches_a_program_on_localhost(node: NodeNamespace) -> None:
    remote = await server(node)
    async with forwarding(node, "p", remote) as (port, _):
        assert await ask(port, b"hello") == b"hello"


async def test_connection_reaches_a_program_on_all_addresses(node: NodeNamespace) -> None:
    remote = await server(node, address="0.0.0.0")  # noqa: S104
    async with forwarding(node, "p", remote) as (port, _):
        assert await ask(port, b"hello") == b"hello"


async def test_several_connections_at_the_same_time(node: NodeNamespace) -> None:
    remote = await server(node)
    texts = [f"connection {number}".encode() for number in range(10)]
    async with forwarding(node, "p", remote) as (port, _):
        assert await asyncio.gather(*(ask(port, text) for text in texts)) == texts


async def test_much_data_in_both_directions(node: NodeNamespace) -> None:
    remote = await server(node)
    data = os.urandom(2_000_000)
    async with forwarding(node, "p", remote) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(data)
        async with asyncio.timeout(60):
            assert await reader.readexactly(len(data)) == data
        writer.close()


async def test_port_on_which_no_program_listens_is_an_error(node: NodeNamespace) -> None:
    await node.pod("p", container("exec sleep 600"))
    await node.until_ready("p")
    async with forwarding(node, "p", 9) as (port, process):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(60):
            assert await reader.read() == b""
            _, errors = await process.communicate()
        writer.close()
    assert b"failed to connect to localhost:9 inside namespace" in errors
    assert process.returncode == 1


async def test_port_of_another_pod_is_not_reached(node: NodeNamespace) -> None:
    remote = await server(node, "other")
    await node.pod("p", container("exec sleep 600"))
    await node.until_ready("p")
    async with forwarding(node, "p", remote) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello")
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
