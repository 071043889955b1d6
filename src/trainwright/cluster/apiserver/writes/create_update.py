"""Creates and updates: from the object that a client sent to the one that is stored, with the metadata that the server
checks and sets."""

import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.resources.strategies.labels import label_map_errors, qualified_name_problem
from trainwright.cluster.apiserver.schema.decoding import DecodeError
from trainwright.cluster.apiserver.schema.structural import Findings
from trainwright.cluster.apiserver.storage.store import Removed
from trainwright.cluster.apiserver.writes.managed_fields import FieldManager, record_update
from trainwright.objects import Object, field_errors
from trainwright.objects.field_errors import ErrorType, FieldError, invalid, required, too_long
from trainwright.objects.paths import value_at
from trainwright.objects.times import format_time

_RULES_NOT_CHECKED = field_errors.invalid(
    "<nil>",
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


_STATUS_PATH = re.compile(r"status(\.|\[|$)")
_BLOCKS_RULES = {
    ErrorType.REQUIRED, ErrorType.NOT_SUPPORTED, ErrorType.TYPE_INVALID, ErrorType.TOO_LONG, ErrorType.TOO_MANY,
}  # fmt: skip


@dataclass(slots=True)
class DecodedObject:
    """A client's object after decoding, pruning and defaulting by its schema."""

    obj: Object
    findings: Findings


def decode_object(kind: ResourceType, body: Any) -> DecodedObject:
    """Decodes the body in place; raises a StatusError if it is not an object of this kind."""
    resource = kind.resource
    if not isinstance(body, dict):
        raise errors.bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): "
            f"the body is not a JSON object but {type(body).__name__}"
        )
    if not kind.custom:
        body.setdefault("apiVersion", resource.api_version)
        body.setdefault("kind", resource.kind)
    if body.get("apiVersion") != resource.api_version:
        raise errors.bad_request(
            f"the API version in the data ({body.get('apiVersion', '')}) does not match the expected API version "
            f"({resource.api_version})"
        )
    if body.get("kind") != resource.kind and not kind.custom:
        raise errors.bad_request(
            f'{body.get("kind")} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"the path serves {resource.plural}"
        )
    if body.get("kind") != resource.kind:
        wrong = field_errors.invalid("kind", body.get("kind", ""), f"must be {resource.kind}")
        raise errors.invalid(replace(resource, kind=str(body.get("kind", ""))), _name_of(body), [wrong])
    if body.get("metadata") is None:
        body["metadata"] = {}
    if not isinstance(body["metadata"], dict):
        raise errors.undecodable(resource, "metadata: must be of type object")
    try:
        decoded = DecodedObject(body, kind.schema.decode(body))
    except DecodeError as error:
        raise errors.undecodable(resource, str(error)) from error
    drop_empty_fields(body["metadata"])
    return decoded


def new_object(
    kind: ResourceType,
    decoded: DecodedObject,
    *,
    namespace: str,
    uid: str,
    manager: FieldManager,
    user: Object | None = None,
) -> Object:
    """The object to store for a create. `user` is the client, as a `UserInfo` of authentication.k8s.io/v1."""
    obj = decoded.obj
    obj["apiVersion"] = kind.storage_api_version
    metadata = obj["metadata"]
    wipe_system_fields(metadata)
    metadata.pop("resourceVersion", None)
    if namespace:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    metadata["uid"] = uid
    metadata["creationTimestamp"] = format_time(manager.now)
    if kind.counts_generation:
        metadata["generation"] = 1
    if kind.custom and kind.has_status:
        obj.pop("status", None)
    kind.strategy.set_defaults(obj)
    if kind.strategy.generate is not None:
        record_update(kind, None, obj, manager)  # before, because no manager owns what is generated
        kind.strategy.generate(obj)
    _raise_if_invalid(kind, obj, [*_schema_errors(kind, obj, decoded), *kind.strategy.validate(obj)])
    if kind.strategy.generate is None:
        record_update(kind, None, obj, manager)
    kind.strategy.set_user(obj, user or {})
    kind.strategy.prepare_for_create(obj)
    return obj


def updated_object(
    kind: ResourceType, decoded: DecodedObject, old: Object, manager: FieldManager, *, patch: bool = False
) -> Object:
    """The object to store for an update or patch; `old` itself when nothing changes."""
    new = decoded.obj
    new["apiVersion"] = kind.storage_api_version
    _check_preconditions(kind, new, old, patch=patch)
    keep_system_fields(new["metadata"], old["metadata"])
    new["metadata"]["name"] = old["metadata"]["name"]
    if "namespace" in old["metadata"]:
        new["metadata"]["namespace"] = old["metadata"]["namespace"]
    if manager.subresource == "status":
        _replace_status_only(kind, decoded, old)
        new = decoded.obj
        kind.strategy.prepare_for_status_update(new, old)
    else:
        if kind.has_status:
            _restore(new, old, "status")
        kind.strategy.set_defaults(new)
        kind.strategy.prepare_for_update(new, old)
    if kind.counts_generation and _content(kind, new) != _content(kind, old):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
    if _without_version(new) == _without_version(old):
        return old
    _raise_if_invalid(kind, new, _schema_errors(kind, new, decoded, manager.subresource) + _new_finalizers(new, old))
    if manager.subresource != "status":
        _raise_if_invalid(kind, new, [*kind.strategy.validate(new), *kind.strategy.validate_update(new, old)])
    else:
        _raise_if_invalid(kind, new, kind.strategy.validate_status(new, old))
    _raise_if_invalid(kind, new, kind.schema.transition_errors(new, old))
    record_update(kind, old, new, manager)
    return old if _without_version(new) == _without_version(old) else new


def removed_if_finalized(kind: ResourceType, obj: Object) -> Object | Removed:
    """Its removal, if the object is marked for deletion and nothing keeps it: no finalizer, no grace period."""
    metadata = obj["metadata"]
    kept = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    if "deletionTimestamp" not in metadata or kept or kind.strategy.waits_for_cleanup(obj):
        return obj
    return Removed(obj)


def _without_version(obj: Object) -> Object:
    return obj | {"metadata": {key: value for key, value in obj["metadata"].items() if key != "resourceVersion"}}


def _check_preconditions(kind: ResourceType, new: Object, old: Object, *, patch: bool) -> None:
    name = old["metadata"]["name"]
    version = new["metadata"].get("resourceVersion")
    if version and version != old["metadata"]["resourceVersion"]:
        raise errors.modified(kind.resource, name)
    if not version and kind.custom and not patch:
        missing = field_errors.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        failure = errors.invalid(kind.resource, name, [missing])
        failure.message = f'{kind.key} "{name}" is invalid: {missing}'
        raise failure
    uid = new["metadata"].get("uid")
    if uid and uid != old["metadata"]["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['metadata']['uid']}"
        raise errors.conflict(kind.resource, name, why)


def _replace_status_only(kind: ResourceType, decoded: DecodedObject, old: Object) -> None:
    """An update of /status may also change labels, annotations and finalizers, except for custom resources."""
    sent = decoded.obj
    metadata = dict(old["metadata"])
    writable = ("managedFields",) if kind.custom else ("managedFields", "labels", "annotations", "finalizers")
    for field in writable:
        if field in sent["metadata"]:
            metadata[field] = sent["metadata"][field]
        elif field != "managedFields":
            metadata.pop(field, None)
    decoded.obj = {key: value for key, value in old.items() if key not in {"metadata", "status"}}
    decoded.obj["metadata"] = metadata
    if "status" in sent:
        decoded.obj["status"] = sent["status"]


def _restore(new: Object, old: Object, field: str) -> None:
    if field in old:
        new[field] = old[field]
    else:
        new.pop(field, None)


def _content(kind: ResourceType, obj: Object) -> Object:
    """The fields whose changes increase `generation`."""
    ignored = {"metadata", "status"} if kind.has_status or not kind.custom else {"metadata"}
    return {key: value for key, value in obj.items() if key not in ignored}


def _schema_errors(kind: ResourceType, obj: Object, decoded: DecodedObject, subresource: str = "") -> list[FieldError]:
    """Errors of metadata and schema in the fields that this endpoint writes."""
    written = decoded.findings.errors
    if kind.has_status:
        in_status = subresource == "status"
        written = [error for error in written if bool(_STATUS_PATH.match(error.path)) is in_status]
    found = [*metadata_errors(obj, kind), *written]
    blocked = kind.schema.has_validation_rules and any(error.type in _BLOCKS_RULES for error in found)
    return [*found, *_scale_errors(kind, obj), *([_RULES_NOT_CHECKED] if blocked else [])]


def _new_finalizers(new: Object, old: Object) -> list[FieldError]:
    if "deletionTimestamp" not in old["metadata"]:
        return []
    added = sorted({*new["metadata"].get("finalizers", [])} - {*old["metadata"].get("finalizers", [])})
    if not added:
        return []
    listed = "[]string{" + ", ".join(f'"{finalizer}"' for finalizer in added) + "}"
    why = f"no new finalizers can be added if the object is being deleted, found new finalizers {listed}"
    return [field_errors.forbidden("metadata.finalizers", why)]


def _scale_errors(kind: ResourceType, obj: Object) -> list[FieldError]:
    if kind.scale is None or not kind.custom:  # the strategies of built-in kinds check it
        return []
    value = value_at(obj, *kind.scale.replicas)
    if isinstance(value, int) and value < 0:
        return [field_errors.invalid("." + ".".join(kind.scale.replicas), value, "should be a non-negative integer")]
    return []


def _raise_if_invalid(kind: ResourceType, obj: Object, found: list[FieldError]) -> None:
    if found:
        raise errors.invalid(kind.resource, _name_of(obj), found)


def _name_of(obj: Object) -> str:
    metadata = obj.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


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
