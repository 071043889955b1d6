"""Responses: objects and lists as JSON, as a Table or as PartialObjectMetadata."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from trainwright.cluster.apiserver.resources.columns.printer_columns import SCALE
from trainwright.cluster.apiserver.resources.resource_type import Column, ResourceType
from trainwright.cluster.apiserver.storage.store import Stored
from trainwright.net.websocket import WebSocket
from trainwright.objects import Object

encode = msgspec.json.encode

_WARNINGS_LENGTH = 4096
_WARNING_LENGTH = 256
"""Characters of all warnings of a response; and of each, if they are more."""


@dataclass(frozen=True, slots=True)
class Response:
    code: int
    body: bytes
    content_type: str = "application/json"
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class StreamingResponse:
    """The response to a watch or to `logs --follow`."""

    chunks: AsyncGenerator[bytes, None]
    content_type: str
    release: Callable[[], None] = lambda: None
    """Called at the end even if the generator was never started."""

    async def close(self) -> None:
        await self.chunks.aclose()
        self.release()


@dataclass(frozen=True, slots=True)
class UpgradeResponse:
    """Switches the connection to a WebSocket."""

    protocols: tuple[str, ...]
    serve: Callable[[WebSocket], Awaitable[None]]
    """Uses the WebSocket until one side closes it."""
    release: Callable[[], None]
    """To be called in the end, also if `serve` was not."""


def warning_headers(warnings: Iterable[str]) -> list[str]:
    """The values of the header `Warning`. As on the real server each is shortened if all together are long."""
    texts = [_printable(text) for text in dict.fromkeys(warnings) if text]
    if sum(map(len, texts)) > _WARNINGS_LENGTH:
        count = _WARNINGS_LENGTH // _WARNING_LENGTH
        texts = [text[:_WARNING_LENGTH] for text in texts[:count]]
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return [f'299 - "{text}"' for text in quoted]


def _printable(text: str) -> str:
    """Without the control characters of values that users wrote, which are not allowed in headers."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character == " " else "\ufffd" for character in text.replace("\n", " ")
    )


def status_response(code: int, details: Object) -> Response:
    body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return Response(code, encode(body | ({"details": details} if details else {})))


@dataclass(frozen=True, slots=True)
class Representation:
    """What a client accepts: the objects themselves, a Table, or PartialObjectMetadata."""

    kind: str = ""  # "", "Table", "PartialObjectMetadata"
    include_object: str = "Metadata"
    """What the rows of a Table contain: None, Metadata or Object."""


_OBJECTS = Representation()


def negotiate(accept: str, query: Mapping[str, str]) -> Representation:
    """The first representation in the Accept header that can be served, else plain JSON."""
    for choice in accept.split(","):
        media, *parameters = (part.strip() for part in choice.split(";"))
        settings = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media not in {"application/json", "*/*", "application/*", ""}:
            continue
        if settings.get("g") == "meta.k8s.io" and settings.get("v") in {"v1", "v1beta1"}:
            match settings.get("as"):
                case "Table":
                    return Representation("Table", query.get("includeObject", "Metadata"))
                case "PartialObjectMetadata" | "PartialObjectMetadataList":
                    return Representation("PartialObjectMetadata")
        if "as" not in settings:
            return _OBJECTS
    return _OBJECTS


def object_body(kind: ResourceType, stored: Stored, representation: Representation, now: datetime) -> bytes:
    if representation.kind == "Table":
        version = stored.obj["metadata"].get("resourceVersion", "")
        return encode(table(kind, [stored.obj], representation, now, {"resourceVersion": version}))
    if representation.kind:
        return encode(partial_object_metadata(stored.obj))
    return plain_body(kind, stored)


def scale_body(scale: Object, representation: Representation, now: datetime) -> bytes:
    """An autoscaling/v1 Scale as it is, or as a Table."""
    if representation.kind != "Table":
        return encode(scale)
    metadata = {"resourceVersion": scale["metadata"].get("resourceVersion", "")}
    return encode(_table(SCALE, [_row(SCALE, scale, scale, representation, now)], metadata))


def plain_body(kind: ResourceType, stored: Stored) -> bytes:
    """The stored bytes; an object that is stored in another version gets the requested apiVersion."""
    if kind.resource.api_version != kind.storage_api_version:
        return encode(in_version(kind, stored.obj))
    return stored.raw


def in_version(kind: ResourceType, obj: Object) -> Object:
    shown = obj if kind.conversion is None else kind.conversion.from_storage(obj)
    return shown | {"apiVersion": kind.resource.api_version}


def list_body(
    kind: ResourceType, items: Sequence[Stored], representation: Representation, now: datetime, metadata: Object
) -> bytes:
    if representation.kind == "Table":
        return encode(table(kind, [item.obj for item in items], representation, now, metadata))
    if representation.kind:
        partial = [partial_object_metadata(item.obj) for item in items]
        kind_name = "PartialObjectMetadataList"
        return encode({"kind": kind_name, "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": partial})
    head = {"kind": kind.items_kind, "apiVersion": kind.resource.api_version, "metadata": metadata}
    return b"".join((encode(head)[:-1], b',"items":[', b",".join(plain_body(kind, item) for item in items), b"]}"))


def partial_object_metadata(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def table(
    kind: ResourceType,
    objects: Iterable[Object],
    representation: Representation,
    now: datetime,
    metadata: Object,
    *,
    with_columns: bool = True,
) -> Object:
    """A meta.k8s.io/v1 Table; only the first event of a watch has the columns."""
    rows = [_row(kind.columns, obj, in_version(kind, obj), representation, now) for obj in objects]
    return _table(kind.columns if with_columns else None, rows, metadata)


def _table(columns: tuple[Column, ...] | None, rows: list[Object], metadata: Object) -> Object:
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": None if columns is None else _column_definitions(columns),
        "rows": rows,
    }


def _column_definitions(columns: tuple[Column, ...]) -> list[Object]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description or column.name,
            "priority": column.priority,
        }
        for column in columns
    ]


def _row(
    columns: tuple[Column, ...], obj: Object, shown: Object, representation: Representation, now: datetime
) -> Object:
    row: Object = {"cells": [column.cell(obj, now) for column in columns]}
    if representation.include_object == "Object":
        row["object"] = shown
    elif representation.include_object == "Metadata":
        row["object"] = partial_object_metadata(obj)
    return row
