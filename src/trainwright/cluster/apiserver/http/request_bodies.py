"""Bodies of requests: decoded from JSON, YAML, or the protobuf for which kubectl has no alternative, and compared with
the path of the request."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.http.discovery import SUBRESOURCE_KINDS
from trainwright.cluster.apiserver.http.protobuf import decode_envelope
from trainwright.cluster.apiserver.http.requests import ApiRequest
from trainwright.cluster.apiserver.http.responses import encode
from trainwright.cluster.apiserver.writes.create_update import DecodedObject, decode_object
from trainwright.objects import Object, json_numbers
from trainwright.objects.json_numbers import paused_collections
from trainwright.objects.paths import value_at
from trainwright.objects.resources import Resource

LIMIT = 3 * 1024 * 1024
"""Bytes of a request body; the real server's limit."""

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_APPLY = "application/apply-patch+yaml"
_SHORT_YAML = 4096
_OLD_VERSIONS = {"Eviction": "policy/v1beta1"}
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


def read_body(request: ApiRequest) -> Body:
    return decode_body(request.body, request.content_type, kind=request.info.kind.resource.kind)


def read_options(request: ApiRequest) -> Object:
    """The body of a request to a subresource."""
    return decode_options(request.body, request.content_type, _options_kind(request), request.info.scope)


def check_options(request: ApiRequest, body: Object) -> None:
    """For a body that is not sent but patched."""
    _check_options(_options_kind(request), request.info.scope, body)


def decode_options(raw: bytes, content_type: str, expected: Resource, namespace: str) -> Object:
    """A body that is not stored: a review, or that of a subresource."""
    body = decode_body(raw, content_type, kind=expected.kind).value
    if not isinstance(body, dict) or not isinstance(body.get("metadata") or {}, dict):
        raise errors.bad_request(f"the body must be a {expected.kind} object")
    _check_options(expected, namespace, body)
    return body


def _options_kind(request: ApiRequest) -> Resource:
    group, version, kind = SUBRESOURCE_KINDS[request.info.subresource]
    return Resource(group, version, "", kind)


def _check_options(expected: Resource, namespace: str, body: Object) -> None:
    """It may leave out its kind and namespace, and has no others than those of the path."""
    kind, version = body.get("kind") or expected.kind, body.get("apiVersion") or expected.api_version
    if kind != expected.kind or version not in {expected.api_version, _OLD_VERSIONS.get(kind)}:
        shown = str(version).rpartition("/")[2]
        why = f"the path takes a {expected.kind} of {expected.api_version}"
        raise errors.bad_request(f'{kind} in version "{shown}" cannot be handled as a {expected.kind}: {why}')
    _check_namespace(namespace, body)


def decode(request: ApiRequest, body: Body, *, patched: bool = False) -> DecodedObject:
    """Decodes the body; unknown and repeated fields are refused or warned about, as `fieldValidation` demands."""
    kind, validation = request.info.kind, request.field_validation
    sent = encode(body.value).decode() if patched and validation == "Strict" else ""
    decoded = decode_object(kind, body.value)
    if validation == "Ignore":
        return decoded
    found = strict_decoding_errors(body, decoded.findings.unknown)
    if found and validation == "Strict":
        why = "strict decoding error: " + ", ".join(found)
        raise errors.invalid_patch(sent, why) if patched else errors.undecodable(kind.resource, why)
    request.warnings.extend(found)
    return decoded


def check_name(request: ApiRequest, obj: object) -> None:
    name = value_at(obj, "metadata", "name")
    if not name:
        why = "was undeterminable: name must be provided"
        raise errors.bad_request(f"the name of the object ({request.info.name} based on URL) {why}")
    if name != request.info.name:
        raise name_mismatch(name, request.info.name)


def check_options_name(request: ApiRequest, body: Object) -> None:
    """The same for a Binding and an Eviction, in the words of the real server."""
    if value_at(body, "metadata", "name") != request.info.name:
        raise errors.bad_request(f"name in URL does not match name in {_options_kind(request).kind} object")


def check_namespace(request: ApiRequest, obj: object) -> None:
    _check_namespace(request.info.scope, obj)


def _check_namespace(expected: str, obj: object) -> None:
    namespace = value_at(obj, "metadata", "namespace")
    if namespace and namespace != expected:
        message = "the namespace of the provided object does not match the namespace sent on the request"
        raise errors.bad_request(message)


def name_mismatch(name: object, expected: str) -> errors.StatusError:
    return errors.bad_request(f"the name of the object ({name}) does not match the name on the URL ({expected})")
