"""The subresources `exec`, `attach` and `portforward` of pods: their options, and the protocol by which the node
provides the streams."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from multidict import MultiMapping

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.request_info import read_flag
from trainwright.kube.client.exec_protocol import Output
from trainwright.objects import Object
from trainwright.objects.kinds.pod_streams import StreamOptions, StreamUnavailable

_COMMANDS = {"portforward": "port-forward"}
_NO_NODE = StreamUnavailable("this API server has no node")
_MAX_SESSIONS = 256
"""Of all clients at the same time."""


class ContainerSession(Protocol):
    """A process in a container and its streams."""

    @property
    def outputs(self) -> Sequence[AsyncGenerator[Output, None]]:
        """What the process writes; they are read at the same time."""
        ...

    async def write(self, data: bytes) -> None:
        """Waits until the process has read enough. Raises BrokenPipeError if it reads no more."""
        ...

    def close_stdin(self) -> None: ...

    def resize(self, width: int, height: int) -> None: ...

    async def wait(self) -> int:
        """The exit code. Raises StreamUnavailable if the process could not be started."""
        ...

    def close(self) -> None:
        """Closes the streams."""
        ...


class PreparedExec(Protocol):
    """A command that its client starts: the first of the descriptors is the session, which starts it at the first
    message, the others are stdout and stderr."""

    @property
    def descriptors(self) -> Sequence[int]: ...

    def close(self) -> None:
        """Closes them here. Can be repeated."""
        ...


class PodStreams(Protocol):
    """Opens streams into running pods; the calls raise StreamUnavailable if that is impossible."""

    async def exec(self, pod: Object, container: str, options: StreamOptions) -> ContainerSession: ...

    async def prepare_exec(self, pod: Object, container: str, command: Sequence[str]) -> PreparedExec: ...

    async def attach(self, pod: Object, container: str, options: StreamOptions) -> ContainerSession: ...

    async def connect(self, pod: Object, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]: ...


class NoStreams:
    """Of a server without a node."""

    async def exec(self, *_: object) -> ContainerSession:
        raise _NO_NODE

    async def prepare_exec(self, *_: object) -> PreparedExec:
        raise _NO_NODE

    async def attach(self, *_: object) -> ContainerSession:
        raise _NO_NODE

    async def connect(self, *_: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise _NO_NODE


class SessionLimit:
    """Counts the sessions of all clients."""

    def __init__(self, most: int = _MAX_SESSIONS) -> None:
        self._most = most
        self._open = 0

    def __enter__(self) -> None:
        if self._open >= self._most:
            raise errors.too_many_requests(f"{self._most} exec, attach and port-forward sessions are open: close some")
        self._open += 1

    def __exit__(self, *_: object) -> None:
        self._open -= 1


def read_stream_options(query: MultiMapping[str]) -> StreamOptions:
    """The parameters of exec and attach. Each argument of the command is one of them."""
    tty = read_flag(query, "tty")
    options = StreamOptions(
        command=tuple(query.getall("command", ())),
        stdin=read_flag(query, "stdin"),
        stdout=read_flag(query, "stdout"),
        stderr=read_flag(query, "stderr") and not tty,
        tty=tty,
    )
    if not (options.stdin or options.stdout or options.stderr):
        raise errors.bad_request("you must specify at least 1 of stdin, stdout, stderr")
    return options


def check_host(pod: Object) -> None:
    if not pod["spec"].get("nodeName"):
        raise errors.bad_request(f"pod {pod['metadata']['name']} does not have a host assigned")


def spdy_refused(subresource: str) -> errors.StatusError:
    """For clients that send an upgrade to SPDY only."""
    command = _COMMANDS.get(subresource, subresource)
    return errors.bad_request(
        f"{command} over SPDY is not served by the embedded cluster, which speaks WebSocket: use kubectl 1.30 or newer "
        "(KUBECTL_REMOTE_COMMAND_WEBSOCKETS and KUBECTL_PORT_FORWARD_WEBSOCKETS must not be false)"
    )


def upgrade_required(subresource: str) -> errors.StatusError:
    """For requests without an upgrade."""
    return errors.bad_request(f"Upgrade request required: {subresource} needs a WebSocket")
