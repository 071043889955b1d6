"""Decodes request bodies: JSON, YAML, and the protobuf messages for which kubectl has no alternative."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.http.protobuf import decode_envelope
from trainwright.objects import Object, json_numbers
from trainwright.objects.json_numbers import paused_collections

LIMIT = 3 * 1024 * 1024
"""Bytes of a request body; the real server's limit."""

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_APPLY = "application/apply-patch+yaml"
_SHORT_YAML = 4096
_END_OF_NAME = re.compile(rb'"\s*:')


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body. `text` is its JSON, which still has the repeated fields that decoding drops."""

    value: Any
    text: bytes = b"{}"


def decode_body(raw: bytes, content_type: str, *, kind: str) -> Body:
    """`kind` is the expected one, for error messages."""
    media = content_type.partition(";")[0].strip().lower() or JSON
    if media == PROTOBUF:
        return Body(decode_envelope(raw))
    if media == YAML:
        return Body(decode_yaml(raw, kind))
    if media not in {JSON, "text/plain", "application/octet-stream", "application/x-www-form-urlencoded"}:
        raise errors.unsupported_media_type(
            "the body of the request was in an unknown format - accepted media types include: "
            f"{JSON}, {YAML}, {PROTOBUF}"
        )
    return Body(decode_json(raw, kind), raw)


def strict_decoding_errors(body: Body, unknown: list[str]) -> list[str]:
    """What strict field validation rejects: repeated fields, then the `unknown` ones, in the real server's order."""
    repeated: dict[int, tuple[Object, list[str]]] = {}

    def collect(pairs: list[tuple[str, Any]]) -> Object:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            repeated[id(fields)] = (fields, sorted(name for name in fields if counts[name] > 1))
        return fields

    def paths(value: Any, path: str) -> Iterator[str]:
        if isinstance(value, dict):
            prefix = f"{path}." if path else ""
            yield from (prefix + name for name in repeated.get(id(value), ({}, []))[1])
            for name, below in value.items():
                yield from paths(below, prefix + name)
        elif isinstance(value, list):
            for index, below in enumerate(value):
                yield from paths(below, f"{path}[{index}]")

    duplicates: Iterable[str] = ()
    if _repeats_fields(body.text):
        with paused_collections():
            document = json.loads(body.text, object_pairs_hook=collect)
        duplicates = paths(document, "")
    return [f'duplicate field "{path}"' for path in duplicates] + [f'unknown field "{path}"' for path in unknown]


def _repeats_fields(text: bytes) -> bool:
    """Compares the number of fields with that after decoding, which is quick; a quote may be written as \\u0022."""
    kept = msgspec.json.encode(json_numbers.decode_json(text)).count(b'":')
    return len(_END_OF_NAME.findall(text)) > kept or b"\\u0022" in text


def decode_json(raw: bytes, kind: str) -> Any:
    try:
        return json_numbers.decode_json(raw)
    except (msgspec.DecodeError, ValueError) as error:
        start = raw[:60].decode(errors="replace")
        raise errors.bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; "
            f"json parse error: {error} ({start})"
        ) from error


def nested_object(body: dict[str, Any], field: str, *, kind: str) -> dict[str, Any]:
    """An object inside options, empty if it is missing. Options have no schema that would check it."""
    value = body.get(field)
    if value is not None and not isinstance(value, dict):
        raise errors.bad_request(f"{kind}: {field}: must be of type object, not {type(value).__name__}")
    return value or {}


def decode_yaml(raw: bytes, kind: str) -> Any:
    """YAML; clients often send JSON, which is YAML too, and quickly read."""
    try:
        return json_numbers.decode_json(raw)
    except (msgspec.DecodeError, ValueError):
        return _yaml(raw, kind)


async def convert_long_yaml(raw: bytes, content_type: str, *, kind: str) -> tuple[bytes, str]:
    """A long YAML body as JSON, made in a thread: YAML takes seconds per megabyte, and other requests would wait."""
    media = content_type.partition(";")[0].strip().lower()
    if len(raw) <= _SHORT_YAML or media not in {YAML, _APPLY}:
        return raw, content_type
    converted = await asyncio.to_thread(lambda: msgspec.json.encode(decode_yaml(raw, kind)))
    return converted, JSON if media == YAML else content_type


def _yaml(raw: bytes, kind: str) -> Any:
    import yaml

    from trainwright.objects.yaml_documents import load_document

    try:
        return load_document(raw)
    except (yaml.YAMLError, ValueError) as error:
        raise errors.bad_request(
            f"the object provided is unrecognized (must be of type {kind}): yaml: {' '.join(str(error).split())}"
        ) from error
