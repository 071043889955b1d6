"""Reads and writes pipes, terminals and sockets by their descriptors, without a buffer of its own."""

import asyncio
import errno
import os
from collections.abc import Callable

_CHUNK = 32 * 1024


class Pipe:
    """One end of a pipe or terminal. Closing it ends a waiting read or write."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._waiting: set[asyncio.Future[None]] = set()
        self._closed = self._ending = False

    def finish(self) -> None:
        """Reads what is there and waits for no more, although processes may have the other end open."""
        self._ending = True
        self._wake_all()

    async def read(self) -> bytes:
        """Waits for data; nothing at the end."""
        while not self._closed:
            try:
                return os.read(self.descriptor, _CHUNK)
            except BlockingIOError:
                if self._ending:
                    return b""
                loop = asyncio.get_running_loop()
                await self._wait(loop.add_reader, loop.remove_reader)
            except OSError as error:
                if error.errno == errno.EIO:  # a terminal that no process has open any more
                    return b""
                raise
        return b""

    async def write(self, data: bytes) -> None:
        """Waits until all is written. Raises BrokenPipeError if no process reads it any more."""
        view = memoryview(data)
        while view:
            if self._closed:
                raise BrokenPipeError(errno.EPIPE, "closed")
            try:
                view = view[os.write(self.descriptor, view) :]
            except BlockingIOError:
                loop = asyncio.get_running_loop()
                await self._wait(loop.add_writer, loop.remove_writer)
            except OSError as error:
                if error.errno == errno.EIO:
                    raise BrokenPipeError(errno.EPIPE, "the terminal is closed") from error
                raise

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.descriptor)
        loop.remove_writer(self.descriptor)
        os.close(self.descriptor)
        self._wake_all()

    def _wake_all(self) -> None:
        for waiter in self._waiting:
            _wake(waiter)

    async def _wait(self, add: Callable[..., object], remove: Callable[[int], object]) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiter)
        add(self.descriptor, _wake, waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)
            if not self._closed:
                remove(self.descriptor)


def _wake(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)
