"""An in-memory API server of one resource without a network: lists, watches, and failures on demand.

It takes the place of a client's transport, so that code on top of it can be tested in fake time.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable

from trainwright.kube.client import requests, responses
from trainwright.kube.client.errors import Silent, Unreachable
from trainwright.kube.client.requests import Request, Response
from trainwright.objects import Object

Failure = Response | Exception
"""An error answer, or an exception instead of an answer."""


class FakeApiServer:
    def __init__(self, *, namespace: str = "n") -> None:
        self.namespace = namespace
        self.version = 0
        self.objects: dict[str, Object] = {}
        self.requests: list[Request] = []
        self.failures: deque[Failure] = deque()
        self._history: list[tuple[int, bytes]] = []
        self._compacted = 0
        self._streams: set[asyncio.Queue[bytes | Exception | None]] = set()

    # Changes on the server

    def write(self, name: str, **fields: object) -> Object:
        """Creates or replaces an object."""
        self.version += 1
        before = self.objects.get(name)
        uid = before["metadata"]["uid"] if before else f"uid-{self.version}"
        metadata = {"name": name, "namespace": self.namespace, "uid": uid, "resourceVersion": str(self.version)}
        written = self.objects[name] = {"metadata": metadata, **fields}
        self._publish("MODIFIED" if before else "ADDED", written)
        return written

    def delete(self, name: str) -> None:
        self.version += 1
        last = self.objects.pop(name)
        self._publish("DELETED", {**last, "metadata": {**last["metadata"], "resourceVersion": str(self.version)}})

    def bookmark(self) -> None:
        """Sends all watches a newer resourceVersion, as after changes of other resources."""
        self.version += 1
        for stream in self._streams:
            stream.put_nowait(_event("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}}))

    def compact(self) -> None:
        """Drops the history: watches can no longer start before the current version."""
        self._compacted = self.version

    def send_line(self, line: bytes) -> None:
        """Sends any line to all watches."""
        for stream in self._streams:
            stream.put_nowait(line)

    def end_streams(self) -> None:
        """Ends all watches without an error."""
        for stream in self._streams:
            stream.put_nowait(None)

    def break_streams(self) -> None:
        for stream in self._streams:
            stream.put_nowait(Unreachable("lost the connection"))

    def freeze_streams(self) -> None:
        """Open watches get no more events, and no error."""
        self._streams.clear()

    def time_out_streams(self, text: str) -> None:
        """All watches end because nothing has arrived for too long."""
        for stream in self._streams:
            stream.put_nowait(Silent(text))

    @property
    def watching(self) -> int:
        return len(self._streams)

    def params_of(self, wanted: Callable[[Request], bool]) -> list[dict[str, str]]:
        return [dict(request.params) for request in self.requests if wanted(request)]

    @property
    def lists(self) -> list[dict[str, str]]:
        return self.params_of(lambda request: not request.streaming)

    @property
    def watches(self) -> list[dict[str, str]]:
        return self.params_of(lambda request: request.streaming)

    # The transport

    async def send(self, request: Request) -> Response:
        if (failure := await self._received(request)) is not None:
            return failure
        params = dict(request.params)
        start, limit = int(params.get("continue", 0)), int(params.get("limit", 0)) or len(self.objects)
        items = list(self.objects.values())[start : start + limit]
        more = str(start + limit) if start + limit < len(self.objects) else ""
        metadata = {"resourceVersion": str(self.version), "continue": more}
        return Response(200, {}, requests.encode({"metadata": metadata, "items": items}))

    async def stream_lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        if (failure := await self._received(request)) is not None:
            responses.read_bytes(failure)
        since = int(dict(request.params).get("resourceVersion", 0))
        if since < self._compacted:
            yield _event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
            return
        stream: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        for version, line in self._history:
            if version > since:
                stream.put_nowait(line)
        self._streams.add(stream)
        try:
            while (item := await stream.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self._streams.discard(stream)

    async def _received(self, request: Request) -> Response | None:
        """Raises or returns the next failure; None if there is none."""
        self.requests.append(request)
        await asyncio.sleep(0)
        failure = self.failures.popleft() if self.failures else None
        if isinstance(failure, Exception):
            raise failure
        return failure

    def _publish(self, kind: str, obj: Object) -> None:
        line = _event(kind, obj)
        self._history.append((self.version, line))
        self.send_line(line)


def _event(kind: str, obj: Object) -> bytes:
    return requests.encode({"type": kind, "object": obj}) + b"\n"
