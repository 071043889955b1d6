"""Requests to the API server as values, built without I/O; the asynchronous and the blocking client send them.

`responses` reads the responses, `retries` decides whether a request is sent again.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, StrEnum
from typing import Any, Protocol, TypedDict, TypeVar, Unpack
from urllib.parse import quote, urlencode

import msgspec

from trainwright.objects import Object
from trainwright.objects.resources import PODS, Resource
from trainwright.objects.times import format_micro_time

T = TypeVar("T")

WATCH_END_SLACK = 15.0
"""The server ends a watch after its timeoutSeconds. The client closes the connection this many seconds later."""

BOOKMARK_TIMEOUT = 90.0
"""A server sends a bookmark about once a minute. The client closes a watch that is silent for longer: a new watch from
the same version costs one request and misses no event."""

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

    `idempotent` requests have the same effect if they are sent twice. `streaming` responses have no time limit as a
    whole; `read_timeout` bounds the seconds without a byte.
    """

    method: str
    path: str
    params: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None
    content_type: str = "application/json"
    idempotent: bool = True
    streaming: bool = False
    read_timeout: float | None = None

    @property
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.params)}" if self.params else self.path


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response. The names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class RequestResult:
    """One attempt to send a request, for metrics; a retry is another one. `seconds` is the time to the complete
    response, or to the start of a stream."""

    request: Request
    status: int | None
    seconds: float

    @property
    def code(self) -> str:
        """The HTTP status as a label; `<error>`, as in client-go, without a response."""
        return "<error>" if self.status is None else str(self.status)

    @property
    def method(self) -> str:
        return self.request.method


class Failure(Enum):
    """Why there is no response."""

    NOT_CONNECTED = "not connected"  # nothing was sent
    UNTRUSTED = "untrusted"  # nothing was sent, and a retry cannot help
    BROKEN = "broken"  # the server may or may not have executed the request
    TIMED_OUT = "timed out"  # the same, and the caller has waited long enough


@dataclass(frozen=True, slots=True)
class InProcessResponse:
    response: Response
    """Its body is empty if there is a stream."""
    stream: AsyncGenerator[bytes, None] | None = None


class InProcessServer(Protocol):
    """An API server in the process of its client: requests and responses are passed as values, without a socket."""

    async def respond(self, request: Request, headers: Mapping[str, str]) -> InProcessResponse:
        """Authenticates, authorizes and executes the request as if it had come over the network."""
        ...


class Selection(TypedDict, total=False):
    """Which objects a list or watch is about: of all namespaces if `namespace` is None."""

    namespace: str | None
    label_selector: str
    field_selector: str


class ExecOptions(TypedDict, total=False):
    """Where and how a command runs. A terminal has one output for both streams."""

    namespace: str | None
    container: str | None
    tty: bool


class Transport(Protocol):
    """Sends requests to an API server: `Client` or a fake."""

    async def send(self, request: Request) -> Response: ...

    def stream_lines(self, request: Request) -> AsyncGenerator[bytes, None]: ...


# Requests for one object. Both clients have a method for each, and add the namespace of their configuration as default.


def get_request(
    resource: Resource,
    name: str,
    *,
    namespace: str | None = None,
    subresource: str | None = None,
    default_namespace: str = "",
) -> Request:
    return Request("GET", _path(resource, namespace or default_namespace, name, subresource))


def create_request(
    resource: Resource,
    obj: Object,
    *,
    namespace: str | None = None,
    subresource: str | None = None,
    strict: bool = False,
    default_namespace: str = "",
) -> Request:
    """POST to the collection, or to a subresource of the object that `obj` names (pods/NAME/binding).

    `strict`: unknown fields are an error. The server drops them otherwise.
    """
    name = obj["metadata"]["name"] if subresource else None
    params = (("fieldValidation", "Strict"),) if strict else ()
    path = _path(resource, namespace or obj["metadata"].get("namespace") or default_namespace, name, subresource)
    return Request("POST", path, params=params, body=encode(obj), idempotent=False)


def replace_request(
    resource: Resource,
    obj: Object,
    *,
    namespace: str | None = None,
    subresource: str | None = None,
    default_namespace: str = "",
) -> Request:
    metadata = obj["metadata"]
    namespace = namespace or metadata.get("namespace") or default_namespace
    return Request("PUT", _path(resource, namespace, metadata["name"], subresource), body=encode(obj))


def patch_request(
    resource: Resource,
    name: str,
    patch: Patch,
    *,
    namespace: str | None = None,
    subresource: str | None = None,
    kind: PatchKind = PatchKind.MERGE,
    field_manager: str | None = None,
    force: bool = False,
    default_namespace: str = "",
) -> Request:
    return Request(
        "PATCH",
        _path(resource, namespace or default_namespace, name, subresource),
        params=_params(fieldManager=field_manager, force="true" if force else None),
        body=encode(patch),
        content_type=kind,
        # A JSON patch may append to a list, or test a value that it changes itself.
        idempotent=kind is not PatchKind.JSON,
    )


def delete_request(
    resource: Resource,
    name: str,
    *,
    namespace: str | None = None,
    uid: str | None = None,
    grace_period_seconds: int | None = None,
    propagation: str | None = "Background",
    default_namespace: str = "",
) -> Request:
    """With `uid` the server answers Conflict if another object has the name by now."""
    options: Object = {"kind": "DeleteOptions", "apiVersion": "v1"}
    if propagation is not None:
        options["propagationPolicy"] = propagation
    if grace_period_seconds is not None:
        options["gracePeriodSeconds"] = grace_period_seconds
    if uid is not None:
        options["preconditions"] = {"uid": uid}
    return Request("DELETE", _path(resource, namespace or default_namespace, name), body=encode(options))


def list_request(
    resource: Resource, *, limit: int = 0, continue_token: str = "", **selection: Unpack[Selection]
) -> Request:
    """One page of a list; the whole list if `limit` is 0."""
    params = _params(
        labelSelector=selection.get("label_selector"),
        fieldSelector=selection.get("field_selector"),
        limit=str(limit) if limit else None,
        **{"continue": continue_token},
    )
    return Request("GET", _path(resource, selection.get("namespace")), params=params)


def watch_request(
    resource: Resource,
    *,
    resource_version: str = "",
    timeout_seconds: int | None = 300,
    bookmarks: bool = False,
    read_timeout: float | None = None,
    **selection: Unpack[Selection],
) -> Request:
    """One watch, until the server ends it.

    `read_timeout`: seconds without data after which the stream ends with Silent; None: the default.
    """
    params = _params(
        watch="true",
        allowWatchBookmarks="true" if bookmarks else None,
        labelSelector=selection.get("label_selector"),
        fieldSelector=selection.get("field_selector"),
        resourceVersion=resource_version,
        timeoutSeconds=None if timeout_seconds is None else str(timeout_seconds),
    )
    if read_timeout is None:
        limits = [BOOKMARK_TIMEOUT] if bookmarks else []
        limits += [] if timeout_seconds is None else [timeout_seconds + WATCH_END_SLACK]
        read_timeout = min(limits, default=None)
    path = _path(resource, selection.get("namespace"))
    return Request("GET", path, params=params, streaming=True, read_timeout=read_timeout)


def logs_request(
    pod: str,
    *,
    namespace: str | None = None,
    container: str | None = None,
    follow: bool = False,
    since_time: datetime | None = None,
    tail_lines: int | None = None,
    timestamps: bool = False,
    previous: bool = False,
    limit_bytes: int | None = None,
    default_namespace: str = "",
) -> Request:
    """The lines of the log with their newlines. `previous`: of the previous container."""
    params = _params(
        container=container,
        follow="true" if follow else None,
        previous="true" if previous else None,
        sinceTime=None if since_time is None else format_micro_time(since_time),
        tailLines=None if tail_lines is None else str(tail_lines),
        timestamps="true" if timestamps else None,
        limitBytes=None if limit_bytes is None else str(limit_bytes),
    )
    return Request("GET", _path(PODS, namespace or default_namespace, pod, "log"), params=params, streaming=True)


def exec_request(pod: str, command: Sequence[str], *, stdin: bool = False, **options: Unpack[ExecOptions]) -> Request:
    """The request that opens the WebSocket."""
    tty = options.get("tty")
    words = tuple(("command", word) for word in command)
    params = _params(
        container=options.get("container"),
        stdin="true" if stdin else None,
        stdout="true",
        stderr=None if tty else "true",
        tty="true" if tty else None,
    )
    path = _path(PODS, options.get("namespace"), pod, "exec")
    return Request("GET", path, params=words + params, idempotent=False, streaming=True)


def raw_request(
    method: str, path: str, *, params: Mapping[str, str] | None = None, body: bytes | Object | None = None
) -> Request:
    """Any other request, such as GET /version. An object as body is encoded as JSON."""
    content = body if isinstance(body, bytes | None) else encode(body)
    pairs = tuple((params or {}).items())
    return Request(method, quote(path, safe="/%"), params=pairs, body=content, idempotent=method != "POST")


def encode(value: Any) -> bytes:
    return _encoder.encode(value)


_encoder = msgspec.json.Encoder()


def _path(resource: Resource, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
    return resource.path(_segment(namespace), _segment(name), subresource)


def _segment(text: str | None) -> str | None:
    return quote(text, safe="") if text else None


def _params(**values: str | None) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in values.items() if value)
