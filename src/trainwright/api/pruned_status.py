"""What must be remembered about a job where the installed CRD drops our status fields: the same facts in an annotation.

Upstream's CRD keeps only upstream's fields. The operator then writes what the server lost of a status to the job's
annotation, before it acts on it, and reads the job through `recalled`.
"""

import base64
import zlib
from typing import Any

import msgspec

from trainwright.api.types import Memory
from trainwright.objects import Object

ANNOTATION = "trainwright.dev/memory"
FIELDS: tuple[str, ...] = tuple(field.encode_name for field in msgspec.structs.fields(Memory))
"""The fields of a status that upstream's CRD does not declare."""
MAX_CHARACTERS = 160 * 1024
"""Kubernetes allows 256 KiB for all annotations of an object together, and kubectl's copy of the manifest is one."""

_READABLE_CHARACTERS = 4096
_MAX_UNPACKED = 8 * 2**20
_PACKED = "zlib:"


class _Note(Memory, frozen=True, omit_defaults=True, kw_only=True):
    """The annotation's content. `of` is the uid of the job: a manifest that was copied brings another job's memory."""

    of: str


def recalled(raw: Object) -> Object:
    """The job with its status completed from its annotation; a field that the status has is right as it is."""
    metadata, status = raw.get("metadata"), raw.get("status") or {}
    if not isinstance(metadata, dict) or not isinstance(status, dict):
        return raw
    annotations = metadata.get("annotations")
    text = annotations.get(ANNOTATION) if isinstance(annotations, dict) else None
    note = {} if text is None else _read(text, metadata.get("uid"))
    forgotten = {field: value for field, value in note.items() if status.get(field) is None}
    return {**raw, "status": {**status, **forgotten}} if forgotten else raw


def lost(written: Object, kept: Object) -> tuple[str, ...]:
    """Which of our fields the server dropped from a status that was written."""
    return tuple(field for field in FIELDS if written.get(field) and not kept.get(field))


def remembered(status: Object, uid: str) -> str | None:
    """The annotation that keeps our fields of `status` for the job with that uid; None: there is nothing to keep.

    It is the same text for the same status, so a settled job needs no write. Should it be too long, which takes
    thousands of pods that are replaced at one moment, it leaves some of those pods out: their ends may count again.
    """
    facts = {field: status[field] for field in FIELDS if status.get(field)}
    if not facts:
        return None
    text = _pack(facts, uid)
    while len(text) > MAX_CHARACTERS and facts:
        facts = _fewer(facts, len(text))
        text = _pack(facts, uid)
    return text


def _fewer(facts: Object, length: int) -> Object:
    """What to keep of facts that are too long: as many of the pods as may fit, else what can be found out again."""
    if pods := facts.get("replacedPods"):
        return {**facts, "replacedPods": pods[: len(pods) * MAX_CHARACTERS // length * 9 // 10]}
    largest = max(facts, key=lambda field: len(msgspec.json.encode(facts[field])))
    return {field: value for field, value in facts.items() if field != largest}


def _pack(facts: Object, uid: str) -> str:
    """Readable while it is short."""
    plain = msgspec.json.encode({"of": uid, **facts}, order="deterministic")
    if len(plain) <= _READABLE_CHARACTERS:
        return plain.decode()
    return _PACKED + base64.b64encode(zlib.compress(plain, 9)).decode()


def _read(text: Any, uid: Any) -> Object:
    """The facts in the annotation; none if it is another job's, or damaged: a user may write there what he likes."""
    try:
        note = msgspec.json.decode(_unpacked(text), type=_Note)
    except (msgspec.DecodeError, zlib.error, ValueError, RecursionError):
        return {}
    facts: Object = msgspec.to_builtins(note)
    return facts if facts.pop("of", None) == uid else {}


def _unpacked(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ValueError(f"not text but {type(text).__name__}")
    if not text.startswith(_PACKED):
        return text.encode()
    packed = base64.b64decode(text.removeprefix(_PACKED), validate=True)
    # Bounded, because a few bytes of zlib can stand for gigabytes.
    return zlib.decompressobj().decompress(packed, _MAX_UNPACKED)
