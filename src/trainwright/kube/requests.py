"""The part of the client that does no I/O: builds every request, reads every answer.

The asynchronous and the blocking client only move the bytes that are described here; `retries` says when again.
"""

import os
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from trainwright.kube.errors import (
    ApiError,
    Expired,
    Silent,
    Unreachable,
    Untrusted,
    error_from_answer,
    error_from_status,
)
from trainwright.objects import Object
from trainwright.objects.resources import PODS, Resource
from trainwright.objects.times import format_micro_time

T = TypeVar("T")

SILENCE_SLACK = 15.0
"""A watch is ended by the server after the time that we ask for; this many seconds later we stop believing in it."""

BOOKMARKED_SILENCE = 90.0
"""With bookmarks a server says something once a minute, if anything ever happened; longer silence is not believed.

To watch again from the same version costs one request and loses nothing."""

CONNECT_TIMEOUT = 10.0

Patch = Object | list[Object]
"""A patch in JSON: an object, or the list of operations of a JSON patch."""


class PatchKind(StrEnum):
    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. `path` is escaped already.

    `repeatable` means that sending it twice does no more than sending it once. `streaming` answers have no time limit
    as a whole; `silence_limit` bounds the seconds without a byte.
    """

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    content_type: str = "application/json"
    repeatable: bool = True
    streaming: bool = False
    silence_limit: float | None = None

    @property
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.params)}" if self.params else self.path


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Failure(Enum):
    """Why there is no answer."""

    NOT_CONNECTED = "not connected"  # nothing was sent
    UNTRUSTED = "untrusted"  # nothing was sent, and the certificates will not be better next time
    BROKEN = "broken"  # the server may or may not have done what was asked
    TIMED_OUT = "timed out"  # the same, and the caller has waited long enough


class Transport(Protocol):
    """Whoever can bring a request to a server and its answer back."""

    async def send(self, request: Request) -> Response: ...

    def stream_lines(self, request: Request) -> AsyncGenerator[bytes, None]: ...


class WatchEvent(msgspec.Struct, frozen=True):
    """ADDED, MODIFIED, DELETED or BOOKMARK, and the object as it is now (as it was last, if deleted)."""

    type: str
    object: Object


@dataclass(frozen=True, slots=True)
class ObjectList:
    """All objects of a list, of however many pages, and the version from which to watch on."""

    items: list[Object]
    resource_version: str


# Building


def get_request(resource: Resource, name: str, *, namespace: str | None, subresource: str | None = None) -> Request:
    return Request("GET", _path(resource, namespace, name, subresource))


def create_request(
    resource: Resource, obj: Object, *, namespace: str | None, subresource: str | None = None, strict: bool = False
) -> Request:
    """POST to the collection, or to a subresource of the object that `obj` names (pods/NAME/binding).

    `strict`: fields that the server does not know are an error instead of being dropped.
    """
    name = obj["metadata"]["name"] if subresource else None
    params = (("fieldValidation", "Strict"),) if strict else ()
    path = _path(resource, namespace, name, subresource)
    return Request("POST", path, params=params, body=encode(obj), repeatable=False)


def replace_request(
    resource: Resource, obj: Object, *, namespace: str | None, subresource: str | None = None
) -> Request:
    return Request("PUT", _path(resource, namespace, obj["metadata"]["name"], subresource), body=encode(obj))


def patch_request(
    resource: Resource,
    name: str,
    patch: Patch,
    *,
    namespace: str | None,
    subresource: str | None = None,
    kind: PatchKind = PatchKind.MERGE,
    field_manager: str | None = None,
    force: bool = False,
) -> Request:
    return Request(
        "PATCH",
        _path(resource, namespace, name, subresource),
        params=_params(fieldManager=field_manager, force="true" if force else None),
        body=encode(patch),
        content_type=kind,
        # A JSON patch may append to a list, or test for what it has changed itself.
        repeatable=kind is not PatchKind.JSON,
    )


def delete_request(
    resource: Resource,
    name: str,
    *,
    namespace: str | None,
    uid: str | None = None,
    grace_period_seconds: int | None = None,
    propagation: str | None = "Background",
) -> Request:
    options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if propagation is not None:
        options["propagationPolicy"] = propagation
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if uid is not None:
        options["preconditions"] = {"uid": uid}
    return Request("DELETE", _path(resource, namespace, name), body=encode(options))


def list_request(
    resource: Resource,
    *,
    namespace: str | None,
    label_selector: str = "",
    field_selector: str = "",
    limit: int = 0,
    continue_token: str = "",
) -> Request:
    """One page of a list, of all namespaces without one. Without a limit the page is the list."""
    params = _params(
        labelSelector=label_selector,
        fieldSelector=field_selector,
        limit=str(limit) if limit else None,
        **{"continue": continue_token},
    )
    return Request("GET", _path(resource, namespace), params=params)


def watch_request(
    resource: Resource,
    *,
    namespace: str | None,
    label_selector: str = "",
    field_selector: str = "",
    resource_version: str = "",
    timeout_seconds: int | None = None,
    bookmarks: bool = False,
    silence_limit: float | None = None,
) -> Request:
    """`silence_limit`: the seconds without a word after which the stream is closed as Silent, if not the usual ones."""
    params = _params(
        watch="true",
        allowWatchBookmarks="true" if bookmarks else None,
        labelSelector=label_selector,
        fieldSelector=field_selector,
        resourceVersion=resource_version,
        timeoutSeconds=None if timeout_seconds is None else str(timeout_seconds),
    )
    if silence_limit is None:
        limits = [BOOKMARKED_SILENCE] if bookmarks else []
        limits += [] if timeout_seconds is None else [timeout_seconds + SILENCE_SLACK]
        silence_limit = min(limits, default=None)
    return Request("GET", _path(resource, namespace), params=params, streaming=True, silence_limit=silence_limit)


def logs_request(
    pod: str,
    *,
    namespace: str | None,
    container: str | None = None,
    follow: bool = False,
    since_time: datetime | None = None,
    tail_lines: int | None = None,
    timestamps: bool = False,
    previous: bool = False,
    limit_bytes: int | None = None,
) -> Request:
    params = _params(
        container=container,
        follow="true" if follow else None,
        previous="true" if previous else None,
        sinceTime=None if since_time is None else format_micro_time(since_time),
        tailLines=None if tail_lines is None else str(tail_lines),
        timestamps="true" if timestamps else None,
        limitBytes=None if limit_bytes is None else str(limit_bytes),
    )
    return Request("GET", _path(PODS, namespace, pod, "log"), params=params, streaming=True)


def exec_request(
    pod: str,
    command: Sequence[str],
    *,
    namespace: str | None,
    container: str | None = None,
    stdin: bool = False,
    tty: bool = False,
) -> Request:
    """The request that a WebSocket is opened with. A terminal has one output for both streams."""
    words = tuple(("command", word) for word in command)
    options = _params(
        container=container,
        stdin="true" if stdin else None,
        stdout="true",
        stderr=None if tty else "true",
        tty="true" if tty else None,
    )
    path = _path(PODS, namespace, pod, "exec")
    return Request("GET", path, params=words + options, repeatable=False, streaming=True)


def raw_request(
    method: str, path: str, *, params: Mapping[str, str] | None = None, body: bytes | Object | None = None
) -> Request:
    """Any other request, such as GET /version. A body that is not bytes is encoded as JSON."""
    content = body if isinstance(body, bytes | None) else encode(body)
    pairs = tuple((params or {}).items())
    return Request(method, quote(path, safe="/%"), params=pairs, body=content, repeatable=method != "POST")


def namespace_for(resource: Resource, namespace: str | None, default: str) -> str | None:
    """A named object of a namespaced resource is looked for in the default namespace unless told."""
    return (namespace or default) if resource.namespaced else None


def namespace_of(resource: Resource, obj: Object, namespace: str | None, default: str) -> str | None:
    return namespace_for(resource, namespace or obj["metadata"].get("namespace"), default)


def encode(value: Any) -> bytes:
    return _encoder.encode(value)


_encoder = msgspec.json.Encoder()


def _path(resource: Resource, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
    return resource.path(_segment(namespace), _segment(name), subresource)


def _segment(text: str | None) -> str | None:
    return quote(text, safe="") if text else None


def _params(**values: str | None) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in values.items() if value)


# Reading


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
