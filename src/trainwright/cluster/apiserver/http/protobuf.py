"""The protobuf bodies for which kubectl has no alternative: access reviews and `create configmap|secret|namespace`.

Only the fields that kubectl sends in them are known; every other kind is refused with a message that names the way out.
"""

import base64
from collections.abc import Callable, Iterator
from typing import Any

from trainwright.cluster.apiserver import errors
from trainwright.objects import Object

_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Fields = list[tuple[int, Any]]


def decode_envelope(raw: bytes) -> Object:
    """The object in a `k8s\\0` envelope."""
    if not raw.startswith(_MAGIC):
        raise errors.bad_request("the body is not Kubernetes protobuf: it does not start with k8s\\0")
    try:
        envelope = dict(_fields(raw[len(_MAGIC) :]))
        names = {number: value.decode() for number, value in _fields(envelope[1])}
        kind = names.get(2, "")
        read = _READERS.get(kind)
        if read is None:
            raise errors.unsupported_media_type(
                f"this server reads protobuf of {', '.join(sorted(_READERS))} only, not of {kind}: "
                "write a manifest (kubectl create … --dry-run=client -o yaml) and send it with kubectl apply -f"
            )
        return {"apiVersion": names.get(1, ""), "kind": kind} | read(list(_fields(envelope.get(2, b""))))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise errors.bad_request(f"the body is not valid Kubernetes protobuf: {error}") from error


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _varint(data, position)
            yield number, value
        elif wire == _BYTES:
            length, position = _varint(data, position)
            if position + length > len(data):
                raise ValueError("a field is cut off")
            yield number, data[position : position + length]
            position += length
        elif wire in {_FIXED32, _FIXED64}:
            position += 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"unknown wire type {wire}")


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7


def _metadata(fields: Fields) -> Object:
    found = dict(fields)
    parts = _fields(found.get(1, b""))
    metadata: Object = {}
    maps = {11: "labels", 12: "annotations"}
    texts = {1: "name", 2: "generateName", 3: "namespace"}
    for number, value in parts:
        if number in texts and value:
            metadata[texts[number]] = value.decode()
        elif number in maps:
            key, text = _entry(value)
            metadata.setdefault(maps[number], {})[key] = text.decode()
    return metadata


def _entry(data: bytes) -> tuple[str, bytes]:
    entry = dict(_fields(data))
    return entry.get(1, b"").decode(), entry.get(2, b"")


def _config_map(fields: Fields) -> Object:
    obj: Object = {"metadata": _metadata(fields)}
    for number, value in fields:
        if number == 2:
            key, text = _entry(value)
            obj.setdefault("data", {})[key] = text.decode()
        elif number == 3:
            key, content = _entry(value)
            obj.setdefault("binaryData", {})[key] = base64.b64encode(content).decode()
        elif number == 4:
            obj["immutable"] = bool(value)
    return obj


def _secret(fields: Fields) -> Object:
    obj: Object = {"metadata": _metadata(fields)}
    for number, value in fields:
        if number == 2:
            key, content = _entry(value)
            obj.setdefault("data", {})[key] = base64.b64encode(content).decode()
        elif number == 3 and value:
            obj["type"] = value.decode()
        elif number == 5:
            obj["immutable"] = bool(value)
    return obj


def _metadata_alone(fields: Fields) -> Object:
    return {"metadata": _metadata(fields)}


def _access_review(fields: Fields) -> Object:
    spec = dict(_fields(dict(fields).get(2, b"")))
    names = {1: "namespace", 2: "verb", 3: "group", 4: "version", 5: "resource", 6: "subresource", 7: "name"}
    attributes = {names[n]: v.decode() for n, v in _fields(spec.get(1, b"")) if n in names and v}
    path = {number: value.decode() for number, value in _fields(spec.get(2, b""))}
    body: Object = {"metadata": _metadata(fields), "spec": {}}
    if attributes:
        body["spec"]["resourceAttributes"] = attributes
    if path:
        body["spec"]["nonResourceAttributes"] = {"path": path.get(1, ""), "verb": path.get(2, "")}
    return body


def _rules_review(fields: Fields) -> Object:
    spec = dict(_fields(dict(fields).get(2, b"")))
    return {"metadata": _metadata(fields), "spec": {"namespace": spec.get(1, b"").decode()}}


_READERS: dict[str, Callable[[Fields], Object]] = {
    "ConfigMap": _config_map,
    "Secret": _secret,
    "Namespace": _metadata_alone,
    "ServiceAccount": _metadata_alone,
    "SelfSubjectAccessReview": _access_review,
    "SelfSubjectRulesReview": _rules_review,
    "SelfSubjectReview": _metadata_alone,
}
