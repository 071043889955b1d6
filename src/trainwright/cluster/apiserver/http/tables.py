"""How objects leave the server: as they are, as rows of a Table, or as metadata alone."""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from trainwright.cluster.apiserver.http.requests import Form
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.storage.store import Stored
from trainwright.objects import Object

encode = msgspec.json.encode


def object_body(kind: ResourceType, stored: Stored, form: Form, now: datetime) -> bytes:
    """One object in the form that was asked for."""
    if form.name == "Table":
        version = stored.obj["metadata"].get("resourceVersion", "")
        return encode(table(kind, [stored.obj], form, now, {"resourceVersion": version}))
    if form.name:
        return encode(metadata_only(stored.obj))
    return plain_body(kind, stored)


def plain_body(kind: ResourceType, stored: Stored) -> bytes:
    """The stored bytes; a custom resource that is asked for in another version than it was stored in is renamed."""
    if kind.custom and kind.resource.version != kind.storage_version:
        return encode(in_version(kind, stored.obj))
    return stored.raw


def in_version(kind: ResourceType, obj: Object) -> Object:
    return obj | {"apiVersion": kind.resource.api_version}


def list_body(kind: ResourceType, items: Sequence[Stored], form: Form, now: datetime, metadata: Object) -> bytes:
    if form.name == "Table":
        return encode(table(kind, [item.obj for item in items], form, now, metadata))
    if form.name:
        partial = [metadata_only(item.obj) for item in items]
        kind_name = "PartialObjectMetadataList"
        return encode({"kind": kind_name, "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": partial})
    head = {"kind": kind.items_kind, "apiVersion": kind.resource.api_version, "metadata": metadata}
    return b"".join((encode(head)[:-1], b',"items":[', b",".join(plain_body(kind, item) for item in items), b"]}"))


def metadata_only(obj: Object) -> Object:
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": obj["metadata"]}


def table(
    kind: ResourceType,
    objects: Iterable[Object],
    form: Form,
    now: datetime,
    metadata: Object,
    *,
    with_columns: bool = True,
) -> Object:
    """A meta.k8s.io/v1 Table; only the first event of a watch carries the columns."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": _definitions(kind) if with_columns else None,
        "rows": [_row(kind, obj, form, now) for obj in objects],
    }


def _definitions(kind: ResourceType) -> list[Object]:
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description or column.name,
            "priority": column.priority,
        }
        for column in kind.columns
    ]


def _row(kind: ResourceType, obj: Object, form: Form, now: datetime) -> Object:
    row: Object = {"cells": [column.cell(obj, now) for column in kind.columns]}
    if form.include == "Object":
        row["object"] = in_version(kind, obj)
    elif form.include == "Metadata":
        row["object"] = metadata_only(obj)
    return row
