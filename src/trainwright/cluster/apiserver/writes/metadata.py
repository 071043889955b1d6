"""The rules of `metadata`, the same for every kind: names, labels, annotations, owners, what clients may not change."""

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
_NAME_PART_PROBLEM = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LABEL_VALUE_PROBLEM = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_SERVER_OWNED = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)
"""A client's values for these are dropped on creation and ignored afterwards."""


def generated_name(prefix: str) -> str:
    """generateName: the prefix and five random characters."""
    return prefix[:58] + "".join(secrets.choice(_SUFFIX_ALPHABET) for _ in range(5))


def drop_server_owned(metadata: Object) -> None:
    for field in _SERVER_OWNED:
        metadata.pop(field, None)


def keep_server_owned(new: Object, old: Object) -> None:
    """On update these stay what they are, whatever the client sent."""
    for field in _SERVER_OWNED:
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
        yield invalid("metadata.labels", value, _LABEL_VALUE_PROBLEM)


def _qualified_name_problem(key: str) -> str | None:
    prefix, slash, name = key.rpartition("/")
    if slash and not prefix:
        return "prefix part must be non-empty"
    if prefix and (problem := dns_subdomain_problem(prefix)):
        return f"prefix part {problem}"
    if len(name) > 63:
        return "name part must be no more than 63 bytes"
    return None if _NAME_PART.fullmatch(name) else _NAME_PART_PROBLEM


def _owner_errors(owners: list[Object]) -> Iterator[FieldError]:
    for index, owner in enumerate(owners):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                detail = "must not be empty"
                yield invalid(f"metadata.ownerReferences[{index}].{field}", owner.get(field, ""), detail)
    managers = [owner for owner in owners if owner.get("controller")]
    if len(managers) > 1:
        kinds = " and ".join(f"{owner.get('kind')}/{owner.get('name')}" for owner in managers[:2])
        detail = f"Only one reference can have Controller set to true. Found {kinds}"
        yield invalid("metadata.ownerReferences", owners, detail)
