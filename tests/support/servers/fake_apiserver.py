"""An API server of one resource, in memory and without a network: lists, watches, and every trouble on demand.

It stands where a client's transport stands, so that what is built on it can be tested in fake time.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable

from trainwright.kube.client import requests, responses
from trainwright.kube.client.errors import Silent, Unreachable
from trainwright.kube.client.requests import Request, Response
from trainwright.objects import Object

Trouble = Response | Exception
"""An answer, or the lack of one, in place of what would have come."""


class FakeApiServer:
    def __init__(self, *, namespace: str = "n") -> None:
        self.namespace = namespace
        self.version = 0
        self.objects: dict[str, Object] = {}
        self.requests: list[Request] = []
        self.troubles: deque[Trouble] = deque()
        self._history: list[tuple[int, bytes]] = []
        self._compacted = 0
        self._streams: set[asyncio.Queue[bytes | Exception | None]] = set()

    # What happens on the server

    def write(self, name: str, **fields: object) -> Object:
        """Creates or replaces an object."""
        self.version += 1
        before = self.objects.get(name)
        uid = before["metadata"]["uid"] if before else f"uid-{self.version}"
        metadata = {"name": name, "namespace": self.namespace, "uid": uid, "resourceVersion": str(self.version)}
        written = self.objects[name] = {"metadata": metadata, **fields}
        self._happen("MODIFIED" if before else "ADDED", written)
        return written

    def delete(self, name: str) -> None:
        self.version += 1
        last = self.objects.pop(name)
        self._happen("DELETED", {**last, "metadata": {**last["metadata"], "resourceVersion": str(self.version)}})

    def bookmark(self) -> None:
        """Time has passed elsewhere: all watches learn of a newer version."""
        self.version += 1
        for stream in self._streams:
            stream.put_nowait(_event("BOOKMARK", {"metadata": {"resourceVersion": str(self.version)}}))

    def compact(self) -> None:
        """History up to now can no longer be watched."""
        self._compacted = self.version

    def say(self, line: bytes) -> None:
        """Sends any line to all watches."""
        for stream in self._streams:
            stream.put_nowait(line)

    def end_streams(self) -> None:
        """Ends all watches in good order."""
        for stream in self._streams:
            stream.put_nowait(None)

    def break_streams(self) -> None:
        for stream in self._streams:
            stream.put_nowait(Unreachable("lost the connection"))

    def leave_behind(self) -> None:
        """Watches that are open hear of nothing any more, and do not notice."""
        self._streams.clear()

    def fall_silent(self, text: str) -> None:
        """All watches are found to be dead: nothing has come for too long."""
        for stream in self._streams:
            stream.put_nowait(Silent(text))

    @property
    def watching(self) -> int:
        return len(self._streams)

    def asked(self, wanted: Callable[[Request], bool]) -> list[dict[str, str]]:
        return [dict(request.params) for request in self.requests if wanted(request)]

    @property
    def lists(self) -> list[dict[str, str]]:
        return self.asked(lambda request: not request.streaming)

    @property
    def watches(self) -> list[dict[str, str]]:
        return self.asked(lambda request: request.streaming)

    # The transport

    async def send(self, request: Request) -> Response:
        if (trouble := await self._asked(request)) is not None:
            return trouble
        params = dict(request.params)
        start, limit = int(params.get("continue", 0)), int(params.get("limit", 0)) or len(self.objects)
        items = list(self.objects.values())[start : start + limit]
        more = str(start + limit) if start + limit < len(self.objects) else ""
        metadata = {"resourceVersion": str(self.version), "continue": more}
        return Response(200, {}, requests.encode({"metadata": metadata, "items": items}))

    async def stream_lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        if (trouble := await self._asked(request)) is not None:
            responses.read_bytes(trouble)
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
            while (said := await stream.get()) is not None:
                if isinstance(said, Exception):
                    raise said
                yield said
        finally:
            self._streams.discard(stream)

    async def _asked(self, request: Request) -> Response | None:
        """The next trouble: raised, or the server's refusal; None if there is none."""
        self.requests.append(request)
        await asyncio.sleep(0)
        trouble = self.troubles.popleft() if self.troubles else None
        if isinstance(trouble, Exception):
            raise trouble
        return trouble

    def _happen(self, kind: str, obj: Object) -> None:
        line = _event(kind, obj)
        self._history.append((self.version, line))
        self.say(line)


def _event(kind: str, obj: Object) -> bytes:
    return requests.encode({"type": kind, "object": obj}) + b"\n"
