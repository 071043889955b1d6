"""What a node provides to the API server: the logs of containers, and streams into them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from trainwright.kube.client.exec_protocol import Output
from trainwright.objects import Object
from trainwright.objects.kinds.pod_subresources import LogOptions, StreamOptions, StreamUnavailable

_NO_NODE = StreamUnavailable("this API server has no node")


class LogReader(Protocol):
    """Reads the log of one container in chunks; the call raises LogUnavailable if there is none."""

    def read(self, pod: Object, container: str, options: LogOptions) -> AsyncGenerator[bytes, None]: ...


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
    """For a server without a node."""

    async def exec(self, *_: object) -> ContainerSession:
        raise _NO_NODE

    async def prepare_exec(self, *_: object) -> PreparedExec:
        raise _NO_NODE

    async def attach(self, *_: object) -> ContainerSession:
        raise _NO_NODE

    async def connect(self, *_: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise _NO_NODE
