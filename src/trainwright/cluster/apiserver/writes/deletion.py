"""Deletes: an object is removed at once, or marked for deletion and left to its finalizers and the kubelet."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.storage.store import Removed
from trainwright.cluster.apiserver.writes.create_update import removed_if_finalized
from trainwright.objects import Object
from trainwright.objects.times import format_time, parse_time

_PROPAGATION_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
_LONGEST_GRACE = 2**31 - 1
"""Seconds; a later deletionTimestamp could not be represented."""


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace_seconds: int | None = None
    propagation: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False


def deleted_object(kind: ResourceType, obj: Object, options: DeleteOptions, now: datetime) -> Object | Removed:
    """The object marked for deletion (`obj` itself if it already is), or its removal."""
    _check_preconditions(kind, obj, options)
    marked = _marked_for_deletion(kind, obj, options, now)
    return removed_if_finalized(kind, marked)


def _check_preconditions(kind: ResourceType, obj: Object, options: DeleteOptions) -> None:
    metadata = obj["metadata"]
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


def _marked_for_deletion(kind: ResourceType, obj: Object, options: DeleteOptions, now: datetime) -> Object:
    metadata = dict(obj["metadata"])
    grace = _grace(kind, obj, options)
    finalizers = _finalizers(metadata.get("finalizers") or [], options.propagation, kind.default_propagation)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    known = metadata.get("deletionTimestamp")
    if known is None:
        metadata["deletionTimestamp"] = format_time(now + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
        if kind.counts_generation:
            metadata["generation"] = metadata.get("generation", 0) + 1
    elif (before := metadata.get("deletionGracePeriodSeconds") or 0) > grace and _shortens(kind, obj, options):
        # A shorter grace period counts from the first DELETE.
        started = parse_time(known) - timedelta(seconds=before)
        metadata["deletionTimestamp"] = format_time(started + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
    if metadata == obj["metadata"]:
        return obj
    marked = obj | {"metadata": metadata}
    kind.strategy.prepare_for_delete(marked)
    return marked


def _grace(kind: ResourceType, obj: Object, options: DeleteOptions) -> int:
    """The grace period; zero unless the pod is bound and has not finished."""
    spec, phase = obj.get("spec") or {}, (obj.get("status") or {}).get("phase")
    if not kind.graceful_deletion or not spec.get("nodeName") or phase in {"Succeeded", "Failed"}:
        return 0
    wanted = options.grace_seconds
    seconds = wanted if wanted is not None else int(spec.get("terminationGracePeriodSeconds", 30))
    return min(max(seconds, 0), _LONGEST_GRACE)


def _shortens(kind: ResourceType, obj: Object, options: DeleteOptions) -> bool:
    """A second DELETE without a grace period does not change the grace period of the first one."""
    return options.grace_seconds is not None or _grace(kind, obj, DeleteOptions()) == 0


def _finalizers(finalizers: list[str], propagation: str | None, default: str | None) -> list[str]:
    if propagation is None:
        if default is None or any(finalizer in _PROPAGATION_FINALIZERS.values() for finalizer in finalizers):
            return finalizers
        propagation = default
    kept = [finalizer for finalizer in finalizers if finalizer not in _PROPAGATION_FINALIZERS.values()]
    added = _PROPAGATION_FINALIZERS.get(propagation)
    return [*kept, added] if added else kept
