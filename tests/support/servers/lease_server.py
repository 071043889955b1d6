"""An in-memory API server of one Lease with optimistic locking and watches, and a faulty network for every client."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import msgspec

from trainwright.kube.client import requests, responses
from trainwright.kube.client.errors import Unreachable
from trainwright.kube.client.requests import Request, Response
from trainwright.objects import Object


class LeaseServer:
    """Carries out requests one after the other, as etcd does."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.writes = 0
        self._version = 0
        self._streams: set[asyncio.Queue[bytes]] = set()

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""

    def handle(self, request: Request) -> Response:
        if request.method == "GET":
            return Response(200, {}, requests.encode(self.lease)) if self.lease else _refusal(404, "NotFound")
        obj: Object = msgspec.json.decode(request.body or b"")
        if request.method == "POST":
            return _refusal(409, "AlreadyExists") if self.lease else self._accept(obj, "ADDED", status=201)
        if self.lease is None:
            return _refusal(404, "NotFound")
        if obj["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return _refusal(409, "Conflict")
        return self._accept(obj, "MODIFIED", status=200)

    def edit(self, **spec: object) -> None:
        """Changes the lease as a user does."""
        assert self.lease
        self._accept({**self.lease, "spec": {**self.lease["spec"], **spec}}, "MODIFIED", status=200)

    def delete(self) -> None:
        assert self.lease
        last, self.lease = self.lease, None
        self._version += 1
        self._publish("DELETED", {**last, "metadata": {**last["metadata"], "resourceVersion": str(self._version)}})

    async def watch(self) -> AsyncGenerator[bytes, None]:
        stream: asyncio.Queue[bytes] = asyncio.Queue()
        self._streams.add(stream)
        try:
            while True:
                yield await stream.get()
        finally:
            self._streams.discard(stream)

    def _accept(self, obj: Object, kind: str, *, status: int) -> Response:
        self._version += 1
        self.writes += 1
        self.lease = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self._version)}}
        self._publish(kind, self.lease)
        return Response(status, {}, requests.encode(self.lease))

    def _publish(self, kind: str, obj: Object) -> None:
        for stream in self._streams:
            stream.put_nowait(requests.encode({"type": kind, "object": obj}) + b"\n")


@dataclass
class Network:
    """The connection of one client to the server.

    `down`: no request arrives. `answers_lost`: requests are carried out, but the client gets no answer. `hangs`:
    requests arrive after so many seconds, even if the client has given up. `may_watch`: the RBAC permission.
    """

    server: LeaseServer
    down: bool = False
    answers_lost: bool = False
    hangs: float = 0.0
    may_watch: bool = True
    sent: int = 0

    async def send(self, request: Request) -> Response:
        self.sent += 1
        if self.down:
            raise Unreachable("cannot connect")
        answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(self.hangs, self._arrive, request, answered)
        return await answered

    def _arrive(self, request: Request, answered: "asyncio.Future[Response]") -> None:
        response = self.server.handle(request)
        if answered.done():
            return
        if self.answers_lost or self.down:
            answered.set_exception(Unreachable("lost the connection"))
        else:
            answered.set_result(response)

    async def stream_lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        self.sent += 1
        if self.down:
            raise Unreachable("cannot connect")
        if not self.may_watch:
            responses.read_bytes(_refusal(403, "Forbidden"))
        async for line in self.server.watch():
            if self.down:
                raise Unreachable("lost the connection")
            yield line


def _refusal(code: int, reason: str) -> Response:
    return Response(code, {}, requests.encode({"kind": "Status", "code": code, "reason": reason, "message": reason}))
