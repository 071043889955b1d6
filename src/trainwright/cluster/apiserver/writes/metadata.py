"""`metadata`: validation of names, labels, annotations and owner references, and the fields that the server sets."""

import re
import secrets
from collections.abc import Iterator

from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, invalid, required, too_long
from trainwright.objects.names import dns_subdomain_problem

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_ANNOTATION_BYTES = 256 * 1024
_NAME_PART = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_INVALID_NAME_PART = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_INVALID_LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
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


def metadata_errors(obj: Object, kind: ResourceType) -> list[FieldError]:
    metadata = obj["metadata"]
    name = metadata.get("name", "")
    found: list[FieldError] = []
    if not name:
        found.append(required("metadata.name", "name or generateName is required"))
    elif problem := kind.validate_name(name):
        found.append(invalid("metadata.name", name, problem))
    for key, value in (metadata.get("labels") or {}).items():
        found += _label_errors(key, value)
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        if problem := _qualified_name_problem(key.lower()):
            found.append(invalid("metadata.annotations", key, problem))
    if sum(len(key) + len(value) for key, value in annotations.items()) > _ANNOTATION_BYTES:
        found.append(too_long("metadata.annotations", _ANNOTATION_BYTES))
    found += _owner_errors(metadata.get("ownerReferences") or [])
    return found


def _label_errors(key: str, value: str) -> Iterator[FieldError]:
    if problem := _qualified_name_problem(key):
        yield invalid("metadata.labels", key, problem)
    if len(value) > 63:
        yield invalid("metadata.labels", value, "must be no more than 63 bytes")
    if value and not _NAME_PART.fullmatch(value):
        yield invalid("metadata.labels", value, _INVALID_LABEL_VALUE)


def _qualified_name_problem(key: str) -> str | None:
    prefix, slash, name = key.rpartition("/")
    if slash and not prefix:
        return "prefix part must be non-empty"
    if prefix and (problem := dns_subdomain_problem(prefix)):
        return f"prefix part {problem}"
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    return None if _NAME_PART.fullmatch(name) else _INVALID_NAME_PART


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
