"""Reads responses of the API server without I/O: objects, pages of lists, lines of streams, errors."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar, Unpack

import msgspec

from trainwright.kube.client.errors import (
    ApiError,
    Expired,
    Silent,
    Unreachable,
    Untrusted,
    error_from_response,
    error_from_status,
)
from trainwright.kube.client.requests import Failure, Request, Response, Selection, list_request
from trainwright.objects import Object
from trainwright.objects.decimals import parse_decimal
from trainwright.objects.resources import Resource

_MAX_LINE_BYTES = 32 * 1024 * 1024
"""Longer than any object that a server sends in a watch."""

T = TypeVar("T")


class WatchEvent(msgspec.Struct, frozen=True):
    """ADDED, MODIFIED, DELETED or BOOKMARK, and the object; its last state if it was deleted."""

    type: str
    object: Object


@dataclass(frozen=True, slots=True)
class ObjectList:
    """All objects of a list, and the resourceVersion from which to watch."""

    items: list[Object]
    resource_version: str


def read_bytes(response: Response) -> bytes:
    """The body of a successful response; any other response is raised as ApiError."""
    if not is_success(response.status):
        raise error_from_response(response.status, response.body, retry_after=retry_after(response.headers))
    return response.body


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The API server sends seconds. A date, which proxies may send, is ignored."""
    return parse_decimal(headers.get("retry-after", ""))


def unreachable(server: str, failure: Failure, reason: str) -> Unreachable:
    """The error for a request without a response."""
    match failure:
        case Failure.NOT_CONNECTED:
            text = f"cannot connect to {server}"
        case Failure.UNTRUSTED:
            return Untrusted(f"cannot trust the certificate of {server}: {reason}")
        case Failure.BROKEN:
            text = f"lost the connection to {server}"
        case Failure.TIMED_OUT:
            text = f"no response from {server} in time"
    return Unreachable(f"{text}: {reason}" if reason else text)


def stream_error(server: str, request: Request, failure: Failure, reason: str) -> Unreachable:
    """The error for a stream that was open."""
    if failure is Failure.TIMED_OUT:
        return Silent(f"no data from {server} for {request.read_timeout:g} s")
    return unreachable(server, failure, reason)


INCOMPLETE_RESPONSE = "the response is incomplete"


def reason_for(error: Exception) -> str:
    """The operating system's text for a socket error, without what the HTTP library adds."""
    if isinstance(error, OSError) and error.errno and error.errno > 0 and not isinstance(error, ssl.SSLError):
        return os.strerror(error.errno)
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error)


def read_object(response: Response) -> Object:
    body = read_bytes(response)
    try:
        return _object_decoder.decode(body)
    except msgspec.DecodeError:
        raise _not_kubernetes(body) from None


def is_success(status: int) -> bool:
    """Redirects are errors: the API does not use them, and credentials must not be sent to another server."""
    return 200 <= status < 300


class ListMeta(msgspec.Struct, rename="camel", gc=False):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, Generic[T]):
    """One page of a list; its items are of any type that msgspec can decode."""

    metadata: ListMeta
    items: list[T] | None = None


class Pager(Generic[T]):
    """Reads a list in pages: send `request` and `take` its response until `request` is None."""

    def __init__(
        self,
        resource: Resource,
        decoder: msgspec.json.Decoder[Page[T]],
        *,
        limit: int = 500,
        **selection: Unpack[Selection],
    ) -> None:
        self._resource = resource
        self._decoder = decoder
        self._limit = limit
        self._selection = selection
        self._on_later_page = False
        self.items: list[T] = []
        self.resource_version = ""
        self.request: Request | None = list_request(resource, limit=limit, **selection)

    def take(self, response: Response) -> None:
        try:
            body = read_bytes(response)
        except Expired:
            # The snapshot of the later pages has been compacted. A list without pages cannot expire.
            if not self._on_later_page:
                raise
            self.items, self._on_later_page = [], False
            self.request = list_request(self._resource, **self._selection)
            return
        try:
            page = self._decoder.decode(body)
        except msgspec.DecodeError:
            raise _not_kubernetes(body) from None
        self.items += page.items or ()
        self.resource_version = page.metadata.resource_version
        token = page.metadata.continue_
        self._on_later_page = bool(token)
        self.request = (
            list_request(self._resource, limit=self._limit, continue_token=token, **self._selection) if token else None
        )


class ObjectPager(Pager[Object]):
    """Reads a list of whole objects."""

    def __init__(self, resource: Resource, *, limit: int = 500, **selection: Unpack[Selection]) -> None:
        super().__init__(resource, _object_page_decoder, limit=limit, **selection)

    def objects(self) -> ObjectList:
        for item in self.items:
            set_type_meta(self._resource, item)
        return ObjectList(self.items, self.resource_version)


def set_type_meta(resource: Resource, item: Object) -> None:
    """Adds apiVersion and kind, which items of built-in lists lack."""
    item.setdefault("apiVersion", resource.api_version)
    item.setdefault("kind", resource.kind)


def read_watch_event(line: bytes) -> WatchEvent:
    """One line of a watch. An ERROR event is raised as its ApiError (410: Expired)."""
    try:
        event = _event_decoder.decode(line)
    except msgspec.DecodeError as error:
        raise Unreachable(f"watch event is not JSON: {error}") from error
    if event.type == "ERROR":
        raise error_from_status(event.object)
    return event


class LineSplitter:
    """Splits a stream of chunks into lines in linear time. Of a line that is too long only the beginning is kept: a
    program can print for ever without ending its line."""

    def __init__(self, *, max_bytes: int = _MAX_LINE_BYTES) -> None:
        self._rest: list[bytes] = []
        self._size = 0
        self._max_bytes = max_bytes

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, each with its newline."""
        *whole, rest = chunk.split(b"\n")
        if not whole:
            self._keep(chunk)
            return []
        self._keep(whole[0])
        whole[0] = b"".join(self._rest)
        self._rest, self._size = [], 0
        self._keep(rest)
        return [line + b"\n" for line in whole]

    def end(self) -> list[bytes]:
        """The rest when the stream has ended: at most one line, without a newline."""
        rest, self._rest, self._size = b"".join(self._rest), [], 0
        return [rest] if rest else []

    def _keep(self, part: bytes) -> None:
        if kept := part[: self._max_bytes - self._size]:
            self._rest.append(kept)
            self._size += len(kept)


def _not_kubernetes(body: bytes) -> ApiError:
    beginning = body[:80].decode(errors="replace")
    text = f"the response is not a JSON object; is this a Kubernetes API server? It begins with {beginning!r}"
    return error_from_response(502, text.encode())


_object_decoder = msgspec.json.Decoder(Object)
_object_page_decoder = msgspec.json.Decoder(Page[Object])
_event_decoder = msgspec.json.Decoder(WatchEvent)
