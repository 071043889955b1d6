"""LIST: a consistent page of a collection, however many changes happen between the pages."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.http.calls import Answer, Call
from trainwright.cluster.apiserver.http.requests import read_selection, whole_number
from trainwright.cluster.apiserver.http.tables import list_body
from trainwright.cluster.apiserver.storage.store import Gone, Key, ObjectStore, Stored
from trainwright.objects import Object

_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class _Position:
    """Where the next page begins: after `after`, in the state of `version` (-1: whatever the state is then)."""

    version: int
    after: Key


def list_answer(store: ObjectStore, call: Call) -> Answer:
    kind, query = call.target.kind, call.query
    selection = read_selection(query, kind)
    limit = whole_number(query, "limit") or 0
    token = query.get("continue", "")
    position = _read_token(token) if token else None
    version, objects = _snapshot(store, call, position)
    wanted = [
        stored
        for stored in objects
        if (call.target.namespace is None or stored.key[0] == call.target.namespace)
        and (position is None or stored.key > position.after)
        and selection.matches(stored)
    ]
    page = wanted[:limit] if limit else wanted
    metadata: Object = {"resourceVersion": str(version)}
    if len(page) < len(wanted):
        metadata["continue"] = _token(_Position(version, page[-1].key))
        if selection.everything:
            metadata["remainingItemCount"] = len(wanted) - len(page)
    return Answer(200, list_body(kind, page, call.form, call.now, metadata))


def _snapshot(store: ObjectStore, call: Call, position: _Position | None) -> tuple[int, Sequence[Stored]]:
    key = call.target.kind.key
    if position is not None:
        if position.version < 0:
            return store.version, store.list(key)
        try:
            return position.version, store.list_at(key, position.version)
        except Gone as error:
            failure = errors.expired(_TOO_OLD)
            failure.continue_token = _token(_Position(-1, position.after))
            raise failure from error
    wanted = whole_number(call.query, "resourceVersion") or 0
    match = call.query.get("resourceVersionMatch", "")
    if match and "resourceVersion" not in call.query:
        raise errors.bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if wanted > store.version:
        message = f"Too large resource version: {wanted}, current: {store.version}"
        causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
        raise errors.ApiFailure(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})
    if match == "Exact" and wanted:
        try:
            return wanted, store.list_at(key, wanted)
        except Gone as error:
            raise errors.expired("The resourceVersion for the provided list is too old.") from error
    return store.version, store.list(key, call.target.namespace)


def _token(position: _Position) -> str:
    content = {"v": "meta.k8s.io/v1", "rv": position.version, "start": "/".join(position.after)}
    return base64.urlsafe_b64encode(msgspec.json.encode(content)).decode().rstrip("=")


def _read_token(token: str) -> _Position:
    try:
        content = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, _, name = content["start"].partition("/")
        return _Position(int(content["rv"]), (namespace, name))
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise errors.bad_request(f"continue key is not valid: {token!r}") from error
