"""What a DELETE does to an object: remove it, or mark it and leave the rest to finalizers, a kubelet, the collector."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.http.bodies import part_of
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.storage.store import Removed
from trainwright.cluster.apiserver.writes.create_update import is_ready_to_go
from trainwright.objects import Object, field_errors
from trainwright.objects.resources import NAMESPACES
from trainwright.objects.times import format_time, parse_time

_PROPAGATION_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
_LONGEST_GRACE = 2**31 - 1
"""Seconds; with more the end could not be told as a time."""
_PROTECTED_NAMESPACES = {"default", "kube-system", "kube-public"}


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace_seconds: int | None = None
    propagation: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False


def read_delete_options(body: Any, query: dict[str, str]) -> DeleteOptions:
    """From the request's body and its query parameters, which say the same."""
    if not isinstance(body, dict):
        raise errors.bad_request("the body of a DELETE must be a DeleteOptions object")
    preconditions = part_of(body, "preconditions", kind="DeleteOptions")
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    propagation = body.get("propagationPolicy", query.get("propagationPolicy"))
    if propagation is None and body.get("orphanDependents") is not None:
        propagation = "Orphan" if body["orphanDependents"] else "Background"
    if propagation not in {None, "Background", "Foreground", "Orphan"}:
        supported = ("Foreground", "Background", "Orphan", "nil")
        unsupported = field_errors.not_supported("propagationPolicy", propagation, supported)
        raise errors.invalid_options("DeleteOptions", unsupported)
    try:
        seconds = None if grace is None else int(grace)
    except (TypeError, ValueError) as error:
        raise errors.bad_request(f"gracePeriodSeconds: {grace!r} is not a whole number") from error
    dry_run = "All" in (body.get("dryRun") or []) or query.get("dryRun") == "All"
    return DeleteOptions(seconds, propagation, preconditions.get("uid"), preconditions.get("resourceVersion"), dry_run)


def deleted_object(kind: ResourceType, obj: Object, options: DeleteOptions, now: datetime) -> Object | Removed:
    """The object marked for deletion, `obj` itself when it already is, or its removal when nothing holds it."""
    _check_preconditions(kind, obj, options)
    marked = _marked(kind, obj, options, now)
    return Removed(marked) if is_ready_to_go(marked) else marked


def _check_preconditions(kind: ResourceType, obj: Object, options: DeleteOptions) -> None:
    metadata = obj["metadata"]
    if kind.resource == NAMESPACES and metadata["name"] in _PROTECTED_NAMESPACES:
        raise errors.forbidden(kind.resource, metadata["name"], "this namespace may not be deleted")
    for what, wanted, found, hint in (
        ("UID", options.uid, metadata["uid"], "deleted and then recreated"),
        ("ResourceVersion", options.resource_version, metadata["resourceVersion"], "modified"),
    ):
        if wanted is not None and wanted != found:
            why = f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). "
            failure = errors.conflict(kind.resource, metadata["name"], f"{why}The object might have been {hint}")
            named = f"{kind.resource.kind}.{kind.resource.group}" if kind.resource.group else kind.resource.kind
            failure.message = failure.message.replace(f'on {kind.key} "', f'on {named} "', 1)
            failure.details = (failure.details or {}) | {"kind": kind.resource.kind}
            raise failure


def _marked(kind: ResourceType, obj: Object, options: DeleteOptions, now: datetime) -> Object:
    metadata = dict(obj["metadata"])
    grace = _grace(kind, obj, options)
    finalizers = _finalizers(metadata.get("finalizers") or [], options.propagation)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    known = metadata.get("deletionTimestamp")
    if known is None:
        metadata["deletionTimestamp"] = format_time(now + timedelta(seconds=grace))
        if kind.resource != NAMESPACES:
            metadata["deletionGracePeriodSeconds"] = grace
        if kind.counts_generation:
            metadata["generation"] = metadata.get("generation", 0) + 1
    elif (before := metadata.get("deletionGracePeriodSeconds") or 0) > grace and _is_shortened(kind, obj, options):
        # The clock started with the first DELETE; a shorter period counts from there.
        started = parse_time(known) - timedelta(seconds=before)
        metadata["deletionTimestamp"] = format_time(started + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
    if metadata == obj["metadata"]:
        return obj
    marked = obj | {"metadata": metadata}
    if kind.resource == NAMESPACES:
        marked["status"] = (obj.get("status") or {}) | {"phase": "Terminating"}
    return marked


def _grace(kind: ResourceType, obj: Object, options: DeleteOptions) -> int:
    """Only a pod that a node may be running waits for its kubelet."""
    spec, phase = obj.get("spec") or {}, (obj.get("status") or {}).get("phase")
    if not kind.graceful_deletion or not spec.get("nodeName") or phase in {"Succeeded", "Failed"}:
        return 0
    wanted = options.grace_seconds
    seconds = wanted if wanted is not None else int(spec.get("terminationGracePeriodSeconds", 30))
    return min(max(seconds, 0), _LONGEST_GRACE)


def _is_shortened(kind: ResourceType, obj: Object, options: DeleteOptions) -> bool:
    """A second DELETE without a period of its own changes nothing for a pod that is already on its way."""
    return options.grace_seconds is not None or _grace(kind, obj, DeleteOptions()) == 0


def _finalizers(finalizers: list[str], propagation: str | None) -> list[str]:
    if propagation is None:
        return finalizers
    kept = [one for one in finalizers if one not in _PROPAGATION_FINALIZERS.values()]
    added = _PROPAGATION_FINALIZERS.get(propagation)
    return [*kept, added] if added else kept
