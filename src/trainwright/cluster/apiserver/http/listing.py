"""LIST in pages that all show the state of one resourceVersion."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.http.requests import ApiRequest, read_integer, read_selectors
from trainwright.cluster.apiserver.http.responses import Response, list_body
from trainwright.cluster.apiserver.storage.store import Key, ObjectStore, ResourceVersionTooOld, Stored
from trainwright.objects import Object

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class _ContinueToken:
    """The next page begins after the key `after`, in the state of `version` (-1: the newest)."""

    version: int
    after: Key


def list_objects(store: ObjectStore, request: ApiRequest) -> Response:
    kind, query = request.info.kind, request.query
    selection = read_selectors(query, kind)
    limit = read_integer(query, "limit") or 0
    token = query.get("continue", "")
    position = _decode_token(token) if token else None
    version, objects = _snapshot(store, request, position)
    wanted = [
        stored
        for stored in objects
        if (request.info.namespace is None or stored.key[0] == request.info.namespace)
        and (position is None or stored.key > position.after)
        and selection.matches(stored)
    ]
    page = wanted[:limit] if limit else wanted
    metadata: Object = {"resourceVersion": str(version)}
    if len(page) < len(wanted):
        metadata["continue"] = _encode_token(_ContinueToken(version, page[-1].key))
        if selection.matches_all:
            metadata["remainingItemCount"] = len(wanted) - len(page)
    return Response(200, list_body(kind, page, request.representation, request.now, metadata))


def _snapshot(store: ObjectStore, request: ApiRequest, position: _ContinueToken | None) -> tuple[int, Sequence[Stored]]:
    key = request.info.kind.key
    if position is not None:
        if position.version < 0:
            return store.version, store.list(key)
        try:
            return position.version, store.list_at(key, position.version)
        except ResourceVersionTooOld as error:
            failure = errors.expired(_TOO_OLD)
            failure.continue_token = _encode_token(_ContinueToken(-1, position.after))
            raise failure from error
    wanted = read_integer(request.query, "resourceVersion") or 0
    match = request.query.get("resourceVersionMatch", "")
    if match and "resourceVersion" not in request.query:
        raise errors.bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if wanted > store.version:
        message = f"Too large resource version: {wanted}, current: {store.version}"
        causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
        raise errors.StatusError(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})
    if match == "Exact" and wanted:
        try:
            return wanted, store.list_at(key, wanted)
        except ResourceVersionTooOld as error:
            raise errors.expired("The resourceVersion for the provided list is too old.") from error
    return store.version, store.list(key, request.info.namespace)


def _encode_token(position: _ContinueToken) -> str:
    content = {"v": "meta.k8s.io/v1", "rv": position.version, "start": "/".join(position.after)}
    return base64.urlsafe_b64encode(msgspec.json.encode(content)).decode().rstrip("=")


def _decode_token(token: str) -> _ContinueToken:
    try:
        content = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, _, name = content["start"].partition("/")
        return _ContinueToken(int(content["rv"]), (namespace, name))
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise errors.bad_request(f"continue key is not valid: {token!r}") from error
