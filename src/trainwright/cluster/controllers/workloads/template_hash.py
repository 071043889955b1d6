"""The hash that names the ReplicaSet of a pod template, and the comparison of templates."""

from typing import Any

import msgspec

from trainwright.objects import Object

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_HASH_LABEL = "pod-template-hash"


def template_hash(template: Object, collisions: int | None) -> str:
    """Other bytes are hashed than upstream's (a Go struct), so the hashes differ; their form is the same."""
    content = msgspec.json.encode(_normal(template), order="deterministic")
    if collisions is not None:
        content += collisions.to_bytes(8, "little")
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(_fnv32a(content)))


def same_template(one: Object, other: Object) -> bool:
    """Empty maps and lists equal missing ones. The label with the hash does not count."""
    return bool(_normal(_without_hash(one)) == _normal(_without_hash(other)))


def _without_hash(template: Object) -> Object:
    metadata = template.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != _HASH_LABEL}
    return template | {"metadata": metadata | {"labels": labels}}


def _normal(value: Any) -> Any:
    if isinstance(value, dict):
        found = {key: _normal(below) for key, below in value.items()}
        return {key: below for key, below in found.items() if below is not None and below not in ({}, [])}
    return [_normal(below) for below in value] if isinstance(value, list) else value


def _fnv32a(content: bytes) -> int:
    digest = 2166136261
    for byte in content:
        digest = ((digest ^ byte) * 16777619) & 0xFFFFFFFF
    return digest
