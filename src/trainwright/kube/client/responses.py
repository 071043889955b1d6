"""Reads every answer of the API server, without I/O: whole objects, lists in pages, lines of a stream, refusals."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from trainwright.kube.client.errors import (
    ApiError,
    Expired,
    Silent,
    Unreachable,
    Untrusted,
    error_from_answer,
    error_from_status,
)
from trainwright.kube.client.requests import Failure, Request, Response, list_request
from trainwright.objects import Object
from trainwright.objects.resources import Resource

T = TypeVar("T")


class WatchEvent(msgspec.Struct, frozen=True):
    """ADDED, MODIFIED, DELETED or BOOKMARK, and the object as it is now (as it was last, if deleted)."""

    type: str
    object: Object


@dataclass(frozen=True, slots=True)
class ObjectList:
    """All objects of a list, of however many pages, and the version from which to watch on."""

    items: list[Object]
    resource_version: str


def read_bytes(response: Response) -> bytes:
    """The body of a good answer; a bad one is raised as an ApiError."""
    if not is_good(response.status):
        raise error_from_answer(response.status, response.body, retry_after=retry_after(response.headers))
    return response.body


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The API server says seconds; a date, which proxies may send, is left to the normal back-off."""
    text = headers.get("retry-after", "")
    return float(text) if text.isdecimal() else None


def unreachable(server: str, failure: Failure, reason: str) -> Unreachable:
    """What to tell the caller when there was no answer."""
    match failure:
        case Failure.NOT_CONNECTED:
            text = f"cannot connect to {server}"
        case Failure.UNTRUSTED:
            return Untrusted(f"cannot trust the certificate of {server}: {reason}")
        case Failure.BROKEN:
            text = f"lost the connection to {server}"
        case Failure.TIMED_OUT:
            text = f"no answer from {server} in time"
    return Unreachable(f"{text}: {reason}" if reason else text)


def lost_stream(server: str, request: Request, failure: Failure, reason: str) -> Unreachable:
    """What to tell the reader of a stream that was open."""
    if failure is Failure.TIMED_OUT:
        return Silent(f"nothing came from {server} for {request.silence_limit:g} s")
    return unreachable(server, failure, reason)


HALF_AN_ANSWER = "the answer ends half-way"
"""What libraries say about it in terms of their own exceptions."""


def reason_of(error: Exception) -> str:
    """The system's own words for an error of a socket, whatever the library around it has made of them."""
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


def is_good(status: int) -> bool:
    """Redirects are not followed: the API does not use them, and credentials must not go elsewhere."""
    return 200 <= status < 300


class ListMeta(msgspec.Struct, rename="camel", gc=False):
    resource_version: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct, Generic[T]):
    """One page of a list, its items of any type that msgspec can decode to."""

    metadata: ListMeta
    items: list[T] | None = None


class Pager(Generic[T]):
    """Walks through the pages of a list: send `request` and `take` its answer until there is none left."""

    def __init__(
        self,
        resource: Resource,
        decoder: msgspec.json.Decoder[Page[T]],
        *,
        namespace: str | None,
        label_selector: str,
        field_selector: str,
        limit: int,
    ) -> None:
        self._resource = resource
        self._decoder = decoder
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._on_later_page = False
        self.items: list[T] = []
        self.resource_version = ""
        self.request: Request | None = self._page(limit=limit)
        self._limit = limit

    def take(self, response: Response) -> None:
        try:
            body = read_bytes(response)
        except Expired:
            # The snapshot that the later pages belong to has been compacted: only a list in one piece is sure to end.
            if not self._on_later_page:
                raise
            self.items, self._on_later_page = [], False
            self.request = self._page(limit=0)
            return
        try:
            page = self._decoder.decode(body)
        except msgspec.DecodeError:
            raise _not_kubernetes(body) from None
        self.items += page.items or ()
        self.resource_version = page.metadata.resource_version
        self._on_later_page = bool(page.metadata.continue_)
        self.request = (
            self._page(limit=self._limit, continue_token=page.metadata.continue_) if self._on_later_page else None
        )

    def _page(self, *, limit: int, continue_token: str = "") -> Request:
        return list_request(
            self._resource,
            namespace=self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            limit=limit,
            continue_token=continue_token,
        )


def object_pager(
    resource: Resource, *, namespace: str | None, label_selector: str, field_selector: str, limit: int
) -> Pager[Object]:
    return Pager(
        resource,
        _object_page_decoder,
        namespace=namespace,
        label_selector=label_selector,
        field_selector=field_selector,
        limit=limit,
    )


def object_list(resource: Resource, pager: Pager[Object]) -> ObjectList:
    for item in pager.items:
        name_kind(resource, item)
    return ObjectList(pager.items, pager.resource_version)


def name_kind(resource: Resource, item: Object) -> None:
    """Items in lists of built-in kinds do not say what they are; on their own they have to."""
    item.setdefault("apiVersion", resource.api_version)
    item.setdefault("kind", resource.kind)


def read_watch_event(line: bytes) -> WatchEvent:
    """One line of a watch. An ERROR event is raised as the ApiError that it carries (410: Expired)."""
    try:
        event = _event_decoder.decode(line)
    except msgspec.DecodeError as error:
        raise Unreachable(f"a watch event that is not JSON: {error}") from error
    if event.type == "ERROR":
        raise error_from_status(event.object)
    return event


class LineSplitter:
    """Cuts a stream of chunks into lines of any length; the time it takes grows with the bytes, not their square."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, each with its newline."""
        *whole, rest = chunk.split(b"\n")
        if not whole:
            self._rest.append(chunk)
            return []
        whole[0] = b"".join([*self._rest, whole[0]])
        self._rest = [rest] if rest else []
        return [line + b"\n" for line in whole]

    def end(self) -> list[bytes]:
        """What is left when the stream has ended: at most one line, without a newline."""
        rest, self._rest = b"".join(self._rest), []
        return [rest] if rest else []


def _not_kubernetes(body: bytes) -> ApiError:
    beginning = body[:80].decode(errors="replace")
    text = f"the answer is not an object in JSON; is this a Kubernetes API server? It begins with {beginning!r}"
    return error_from_answer(502, text.encode())


_object_decoder = msgspec.json.Decoder(Object)
_object_page_decoder = msgspec.json.Decoder(Page[Object])
_event_decoder = msgspec.json.Decoder(WatchEvent)
