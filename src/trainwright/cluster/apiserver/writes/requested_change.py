"""From a request's patch or Scale to the object that it wants: the step before an update's own rules."""

from typing import Any

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.errors import ApiFailure
from trainwright.cluster.apiserver.resources.resource_type import ResourceType, ScalePaths
from trainwright.cluster.apiserver.writes.patch import PatchError, TestFailed, json_patch, merge_patch
from trainwright.cluster.apiserver.writes.strategic_merge import strategic_patch
from trainwright.objects import Object, copied
from trainwright.objects.paths import value_at

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def patch_media_type(content_type: str, kind: ResourceType) -> str:
    """The kind of patch; strategic ones need Go types, which custom resources do not have."""
    media = content_type.partition(";")[0].strip().lower()
    accepted = [JSON_PATCH, MERGE, *([] if kind.custom else [STRATEGIC]), APPLY]
    if media not in accepted:
        message = "the body of the request was in an unknown format - accepted media types include: "
        raise errors.unsupported_media_type(message + ", ".join(accepted))
    return media


def changed_by_patch(kind: ResourceType, obj: Object, patch: Any, media: str) -> Object:
    """The object after a merge, JSON or strategic patch. The original is not modified."""
    try:
        match media:
            case "application/json-patch+json":
                changed = json_patch(obj, patch)
            case "application/strategic-merge-patch+json":
                changed = strategic_patch(obj, patch, kind.schema.root, kind.schema.lookup)
            case _:
                changed = merge_patch(obj, patch)
    except TestFailed as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise ApiFailure(422, "Invalid", message) from error
    except PatchError as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise ApiFailure(
            422 if media == JSON_PATCH else 400, "Invalid" if media == JSON_PATCH else "BadRequest", message
        ) from error
    if not isinstance(changed, dict):
        raise errors.bad_request("the patch leaves no object")
    # The walk that admits an object completes it in place, and a patch shares its unchanged parts with the stored one.
    return copied(changed)


def scale_of(paths: ScalePaths, obj: Object) -> Object:
    """The autoscaling/v1 Scale that a custom resource shows."""
    metadata = {
        key: obj["metadata"][key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if key in obj["metadata"]
    }
    status: Object = {"replicas": value_at(obj, *paths.status_replicas, default=0)}
    if paths.selector and (selector := value_at(obj, *paths.selector)):
        status["selector"] = selector
    replicas = value_at(obj, *paths.replicas)
    spec = {} if replicas is None else {"replicas": replicas}
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def with_scale(paths: ScalePaths, obj: Object, scale: Object) -> Object:
    """The custom resource with the replicas of a Scale."""
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise errors.bad_request(f"Scale: spec.replicas must be of type integer, not {replicas!r}")
    changed = copied(obj)
    holder = changed
    for key in paths.replicas[:-1]:
        holder = holder.setdefault(key, {})
    holder[paths.replicas[-1]] = replicas
    if version := (scale.get("metadata") or {}).get("resourceVersion"):
        changed["metadata"]["resourceVersion"] = version
    return changed
