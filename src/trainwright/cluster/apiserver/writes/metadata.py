"""`metadata`: validation of names, labels, annotations and owner references, and the fields that the server sets."""

import secrets
from collections.abc import Iterator

from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.resources.strategies.labels import label_map_errors, qualified_name_problem
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, invalid, required, too_long

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_ANNOTATION_BYTES = 256 * 1024
_LONGEST_SHOWN = 300
_SYSTEM_FIELDS = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)
"""Set by the server; values from clients are ignored."""


def generated_name(prefix: str) -> str:
    """The prefix of `generateName` and five random characters."""
    return prefix[:58] + "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(5))


def wipe_system_fields(metadata: Object) -> None:
    for field in _SYSTEM_FIELDS:
        metadata.pop(field, None)


def keep_system_fields(new: Object, old: Object) -> None:
    for field in _SYSTEM_FIELDS:
        if field in old:
            new[field] = old[field]
        else:
            new.pop(field, None)


def drop_empty_fields(metadata: Object) -> None:
    """Go leaves out empty maps and lists."""
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        if field in metadata and not metadata[field]:
            del metadata[field]


def metadata_errors(obj: Object, kind: ResourceType) -> list[FieldError]:
    metadata = obj["metadata"]
    name = metadata.get("name", "")
    found: list[FieldError] = []
    if (prefix := metadata.get("generateName", "")) and (problem := kind.validate_name(_as_name(prefix))):
        found.append(invalid("metadata.generateName", prefix[:_LONGEST_SHOWN], problem))
    if not name:
        found.append(required("metadata.name", "name or generateName is required"))
    elif problem := kind.validate_name(name):
        found.append(invalid("metadata.name", name, problem))
    found += label_map_errors(metadata.get("labels") or {}, "metadata.labels")
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        if problem := qualified_name_problem(key.lower()):
            found.append(invalid("metadata.annotations", key, problem))
    if (
        sum(len(f"{key}{value}".encode(errors="surrogatepass")) for key, value in annotations.items())
        > _ANNOTATION_BYTES
    ):
        found.append(too_long("metadata.annotations", _ANNOTATION_BYTES))
    found += _owner_errors(metadata.get("ownerReferences") or [])
    return found


def _as_name(prefix: str) -> str:
    """A prefix may end with a dash, which the generated characters follow."""
    return f"{prefix[:-1]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def _owner_errors(owners: list[Object]) -> Iterator[FieldError]:
    for index, owner in enumerate(owners):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                detail = "must not be empty"
                yield invalid(f"metadata.ownerReferences[{index}].{field}", owner.get(field, ""), detail)
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        kinds = " and ".join(f"{owner.get('kind')}/{owner.get('name')}" for owner in controllers[:2])
        detail = f"Only one reference can have Controller set to true. Found {kinds}"
        yield invalid("metadata.ownerReferences", owners, detail)
