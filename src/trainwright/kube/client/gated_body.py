"""The body of a request that must not leave at a wrong time: it asks when its first byte is about to be written.

Before that the request may have waited for a connection, or the whole process may have been stopped for a minute. The
headers go out with the body, so a request whose body is held back has not been sent at all.
"""

from collections.abc import Callable

import aiohttp
from aiohttp.abc import AbstractStreamWriter


class GatedBody(aiohttp.BytesPayload):
    """`gate` raises if the request must not leave now. The library tells it in words of its own: `refused` has it."""

    def __init__(self, body: bytes, gate: Callable[[], None]) -> None:
        super().__init__(body)
        self.refused: Exception | None = None
        self._gate = gate

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        try:
            self._gate()
        except Exception as error:
            self.refused = error
            raise
        await super().write_with_length(writer, content_length)
