"""Pod templates: their pods, the hash that names a ReplicaSet or revision, and when two templates are the same."""

from typing import Any

import msgspec

from trainwright.objects import Object, copied
from trainwright.objects.metadata import controller_reference

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_HASH_LABEL = "pod-template-hash"
REVISION_HASH = "controller-revision-hash"
"""A label of the pods of StatefulSets and DaemonSets."""
_FROM_TEMPLATE = ("labels", "annotations", "finalizers")


def render_pod(owner: Object, template: Object, **metadata: Any) -> Object:
    """A pod of the template. `metadata` is added to the template's; maps are merged."""
    own = owner["metadata"]
    merged: Object = {
        key: copied(value) for key, value in template["metadata"].items() if key in _FROM_TEMPLATE and value
    }
    merged |= {"namespace": own["namespace"], "ownerReferences": [controller_reference(owner)]}
    merged.setdefault("generateName", f"{own['name']}-")
    for key, value in metadata.items():
        merged[key] = {**(merged.get(key) or {}), **value} if isinstance(value, dict) else value
    return {"apiVersion": "v1", "kind": "Pod", "metadata": merged, "spec": copied(template["spec"])}


def template_hash(template: Object, collisions: int | None) -> str:
    """Other bytes are hashed than upstream's (a Go struct), so the hashes differ; their form is the same."""
    content = msgspec.json.encode(_normal(template), order="deterministic")
    if collisions is not None:
        content += collisions.to_bytes(8, "little")
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(_fnv32a(content)))


def same_template(template: Object, other: Object) -> bool:
    """Empty maps and lists equal missing ones. The label with the hash does not count."""
    return bool(_normal(_without_hash(template)) == _normal(_without_hash(other)))


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
