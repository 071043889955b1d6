"""Applies a patch of any media type to an object; the result is then decoded and validated like an update."""

from typing import Any

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.writes.json_patch import (
    PatchError,
    TestFailed,
    TooManyOperations,
    json_patch,
    merge_patch,
)
from trainwright.cluster.apiserver.writes.strategic_merge_patch import strategic_merge_patch
from trainwright.objects import Object, copied

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


def patch_media_type(content_type: str, kind: ResourceType) -> str:
    """The media type of the patch. Custom resources have no Go types, so they have no strategic merge."""
    media = content_type.partition(";")[0].strip().lower()
    accepted = [JSON_PATCH, MERGE, *([] if kind.custom else [STRATEGIC]), APPLY]
    if media not in accepted:
        message = "the body of the request was in an unknown format - accepted media types include: "
        raise errors.unsupported_media_type(message + ", ".join(accepted))
    return media


def patched_object(kind: ResourceType, obj: Object, patch: Any, media: str) -> Object:
    """The object after a merge, JSON or strategic patch. The original is not modified."""
    try:
        match media:
            case "application/json-patch+json":
                changed = json_patch(obj, patch)
            case "application/strategic-merge-patch+json":
                changed = strategic_merge_patch(obj, patch, kind.schema.root, kind.schema.lookup)
            case _:
                changed = merge_patch(obj, patch)
    except TooManyOperations as error:
        raise StatusError(413, "RequestEntityTooLarge", str(error)) from error
    except TestFailed as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise StatusError(422, "Invalid", message) from error
    except PatchError as error:
        message = f"the server rejected our request due to an error in our request: {error}"
        raise StatusError(
            422 if media == JSON_PATCH else 400, "Invalid" if media == JSON_PATCH else "BadRequest", message
        ) from error
    if not isinstance(changed, dict):
        raise errors.bad_request("the patch leaves no object")
    # Decoding changes the object in place, and a patch shares unchanged values with the stored object.
    return copied(changed)
