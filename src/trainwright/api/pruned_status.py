"""Status fields that the installed CRD prunes: an annotation of the job keeps them.

Upstream's CRD declares only upstream's fields. The operator then writes the other fields of a status to the annotation
before it acts on them, and restores them when it reads the job.
"""

import base64
import zlib
from typing import Any

import msgspec

from trainwright.api.types import AdditionalStatus
from trainwright.objects import Object

ANNOTATION = "trainwright.dev/memory"
ADDITIONAL_FIELDS: tuple[str, ...] = tuple(field.encode_name for field in msgspec.structs.fields(AdditionalStatus))
"""The status fields that upstream's CRD does not declare."""
MAX_CHARACTERS = 160 * 1024
"""Kubernetes allows 256 KiB for all annotations of an object together, and kubectl's copy of the manifest is one."""

_READABLE_CHARACTERS = 4096
_MAX_DECOMPRESSED = 8 * 2**20
_COMPRESSED = "zlib:"


class _Annotation(AdditionalStatus, frozen=True, omit_defaults=True, kw_only=True):
    """The annotation's content. `of` is the job's uid: a copied manifest may have the annotation of another job."""

    of: str


def restore_pruned_fields(raw: Object) -> Object:
    """The job with its status completed from its annotation. Fields that the status has take precedence."""
    metadata, status = raw.get("metadata"), raw.get("status") or {}
    if not isinstance(metadata, dict) or not isinstance(status, dict):
        return raw
    annotations = metadata.get("annotations")
    text = annotations.get(ANNOTATION) if isinstance(annotations, dict) else None
    fields = {} if text is None else _decode(text, metadata.get("uid"))
    missing = {field: value for field, value in fields.items() if status.get(field) is None}
    return {**raw, "status": {**status, **missing}} if missing else raw


def pruned_fields(written: Object, stored: Object) -> tuple[str, ...]:
    """The fields that the API server pruned from the status that was written."""
    return tuple(field for field in ADDITIONAL_FIELDS if written.get(field) and not stored.get(field))


def annotation_value(status: Object, uid: str) -> str | None:
    """The annotation with the additional fields of `status`, for the job with this uid; None if there are none.

    The same status gives the same text, so a settled job needs no write. If thousands of pods are replaced at the same
    time, the text may become too long. Then some of these pods are left out, and their failures may be counted again.
    """
    fields = {field: status[field] for field in ADDITIONAL_FIELDS if status.get(field)}
    if not fields:
        return None
    text = _encode(fields, uid)
    while len(text) > MAX_CHARACTERS and fields:
        fields = _shortened(fields, len(text))
        text = _encode(fields, uid)
    return text


def _shortened(fields: Object, length: int) -> Object:
    """As many of the replaced pods as may fit; without any, all fields but the longest."""
    if pods := fields.get("replacedPods"):
        return {**fields, "replacedPods": pods[: len(pods) * MAX_CHARACTERS // length * 9 // 10]}
    longest = max(fields, key=lambda field: len(msgspec.json.encode(fields[field])))
    return {field: value for field, value in fields.items() if field != longest}


def _encode(fields: Object, uid: str) -> str:
    """Readable JSON while it is short, else compressed."""
    plain = msgspec.json.encode({"of": uid, **fields}, order="deterministic")
    if len(plain) <= _READABLE_CHARACTERS:
        return plain.decode()
    return _COMPRESSED + base64.b64encode(zlib.compress(plain, 9)).decode()


def _decode(text: Any, uid: Any) -> Object:
    """The fields in the annotation; none if it belongs to another job or is malformed: users can edit it."""
    try:
        content = msgspec.json.decode(_decompressed(text), type=_Annotation)
    except (msgspec.DecodeError, zlib.error, ValueError, RecursionError):
        return {}
    fields: Object = msgspec.to_builtins(content)
    return fields if fields.pop("of", None) == uid else {}


def _decompressed(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ValueError(f"not text but {type(text).__name__}")
    if not text.startswith(_COMPRESSED):
        return text.encode()
    compressed = base64.b64decode(text.removeprefix(_COMPRESSED), validate=True)
    # Bounded, because a few bytes of zlib can expand to gigabytes.
    return zlib.decompressobj().decompress(compressed, _MAX_DECOMPRESSED)
