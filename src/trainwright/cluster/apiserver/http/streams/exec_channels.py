"""Connects a WebSocket with a process in a container, for exec and attach."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from trainwright.cluster.apiserver.http.streams.node_interface import ContainerSession
from trainwright.kube.client import exec_protocol
from trainwright.kube.client.exec_protocol import EndOfInput, Input, Output, Resize
from trainwright.net.websocket import WebSocket
from trainwright.objects.kinds.exec_options import StreamOptions, StreamUnavailable

PROTOCOLS = (exec_protocol.V5, exec_protocol.V4)
"""The preferred one first."""

_PONG_SECONDS = 10.0

Pongs = asyncio.Task[None]


async def serve_session(session: ContainerSession, socket: WebSocket, options: StreamOptions) -> None:
    """Returns when the process has ended and all its output is sent, or when the client has closed the connection.

    A process that does not read, or a client that does not, makes the other side wait: nothing is queued here.
    """
    await socket.send(exec_protocol.output_message(Output(b"")))  # the real server opens the session so
    reading = asyncio.create_task(_forward_input(session, socket))
    working = asyncio.create_task(_forward_output(session, socket, options))
    try:
        await asyncio.wait({reading, working}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            working.result()
            await socket.close()
    finally:
        for task in (reading, working):
            task.cancel()
        await asyncio.gather(reading, working, return_exceptions=True)


async def _forward_output(session: ContainerSession, socket: WebSocket, options: StreamOptions) -> None:
    copying = [asyncio.create_task(_copy(output, socket)) for output in session.outputs]
    try:
        try:
            exit_code = await session.wait()
        except StreamUnavailable as error:
            await socket.send(exec_protocol.error_message(str(error)))
            return
        await asyncio.gather(*copying)
        await socket.send(exec_protocol.exit_message(exit_code, protocol=socket.protocol, command=options.command))
    finally:
        for task in copying:
            task.cancel()
        await asyncio.gather(*copying, return_exceptions=True)


async def _copy(outputs: AsyncGenerator[Output, None], socket: WebSocket) -> None:
    async with aclosing(outputs):
        async for output in outputs:
            await socket.send(exec_protocol.output_message(output))
            await asyncio.sleep(0)  # lets other tasks run: neither side may ever be slow


async def _forward_input(session: ContainerSession, socket: WebSocket) -> None:
    """Returns when the client has closed the connection."""
    while (message := await socket.receive()) is not None:
        match exec_protocol.read_client_message(message):
            case Input(data):
                await _write(session, socket, data)
            case EndOfInput():
                session.close_stdin()
            case Resize(width, height):
                session.resize(width, height)


async def _write(session: ContainerSession, socket: WebSocket, data: bytes) -> None:
    """Waits until the process has read it. Clients that get no answer to their pings would give up meanwhile."""
    pongs = asyncio.get_running_loop().call_later(_PONG_SECONDS, _start_pongs, socket, answering := set[Pongs]())
    try:
        await session.write(data)
    except BrokenPipeError:
        pass  # the process reads no more; its exit code follows
    finally:
        pongs.cancel()
        for task in answering:
            task.cancel()


def _start_pongs(socket: WebSocket, tasks: set[Pongs]) -> None:
    tasks.add(asyncio.create_task(_send_pongs(socket)))


async def _send_pongs(socket: WebSocket) -> None:
    with suppress(ConnectionError):
        while True:
            await socket.pong()
            await asyncio.sleep(_PONG_SECONDS)
