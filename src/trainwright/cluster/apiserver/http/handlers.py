"""The handlers of all verbs, generic over resources; a kind's own behaviour is in its ResourceType.

The pages of a list all show the state of one resourceVersion.
"""

import base64
import binascii
import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.authorizer import Authorizer
from trainwright.cluster.apiserver.access.request_info import read_flag
from trainwright.cluster.apiserver.admission.plugin_chain import PluginChain
from trainwright.cluster.apiserver.http.object_writer import ObjectWriter, existing
from trainwright.cluster.apiserver.http.request_bodies import (
    JSON,
    Body,
    check_name,
    check_namespace,
    check_options,
    decode,
    decode_body,
    decode_json,
    decode_yaml,
    read_body,
    read_options,
)
from trainwright.cluster.apiserver.http.requests import ApiRequest, read_delete_options, read_integer, read_selectors
from trainwright.cluster.apiserver.http.responses import (
    Response,
    encode,
    in_version,
    list_body,
    object_body,
    scale_body,
    status_response,
)
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.storage.store import Key, ObjectStore, Removed, ResourceVersionTooOld, Stored
from trainwright.cluster.apiserver.writes.create_update import (
    DecodedObject,
    decode_object,
    generated_name,
    new_object,
    removed_if_finalized,
    updated_object,
)
from trainwright.cluster.apiserver.writes.managed_fields import FieldManager
from trainwright.cluster.apiserver.writes.patch import APPLY, patched_object
from trainwright.cluster.apiserver.writes.server_side_apply import apply_object
from trainwright.cluster.apiserver.writes.subresources import scale_of, with_scale
from trainwright.objects import Object, copied, field_errors
from trainwright.objects.paths import value_at

_GENERATED_NAME_TRIES = 8
_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class ResourceHandlers:
    """Handles requests for objects and collections. All state is in the store."""

    def __init__(
        self,
        store: ObjectStore,
        registry: Registry,
        authorizer: Authorizer,
        plugins: PluginChain,
        writer: ObjectWriter,
    ) -> None:
        self._store = store
        self._registry = registry
        self._authorizer = authorizer
        self._plugins = plugins
        self._writer = writer

    def get(self, request: ApiRequest) -> Response:
        info, kind = request.info, request.info.kind
        stored = existing(info, self._store.get(kind.key, info.scope, info.name))
        if info.subresource == "scale" and kind.scale:
            return Response(200, scale_body(scale_of(kind.scale, stored.obj), request.representation, request.now))
        return Response(200, object_body(kind, stored, request.representation, request.now))

    def list(self, request: ApiRequest) -> Response:
        return list_objects(self._store, request)

    async def write_view(self, request: ApiRequest, media: str = "") -> Response:
        """POST, PUT or PATCH (of that media type) of an object whose fields differ from those of the stored one."""
        info, kind = request.info, request.info.kind
        conversion = kind.conversion
        if conversion is None or media == APPLY:
            raise errors.method_not_allowed()
        if media:
            current = existing(info, self._store.get(kind.key, info.scope, info.name))
            body = Body(patched_object(kind, in_version(kind, current.obj), decode_json(request.body, "patch"), media))
        else:
            body = read_body(request)
        decoded = decode(request, body).obj
        if request.verb == "create" and (found := conversion.validate_new(decoded)):
            raise errors.invalid(kind.resource, decoded["metadata"].get("name", ""), found)
        stored = next(version for version in self._registry.versions_of(kind) if version.conversion is None)
        converted = encode(conversion.to_storage(decoded) | {"apiVersion": stored.resource.api_version})
        inner = replace(request, info=replace(info, kind=stored), body=converted, content_type=JSON, accept=JSON)
        response = await (self.create(inner) if request.verb == "create" else self.update(inner))
        return replace(response, body=encode(in_version(kind, decode_json(response.body, "Event"))))

    async def create(self, request: ApiRequest) -> Response:
        """POST to a collection."""
        info = request.info
        body = read_body(request)
        check_namespace(request, body.value)
        decoded = decode(request, body)
        metadata = decoded.obj["metadata"]
        if metadata.get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        decoded = await self._writer.mutate(request, decoded, None)
        metadata = decoded.obj["metadata"]
        self._plugins.authorize(request.user, info.kind, request.attributes(""), decoded.obj, None)
        prefix = "" if metadata.get("name") else str(metadata.get("generateName") or "")
        for _ in range(_GENERATED_NAME_TRIES if prefix else 1):
            if prefix:
                metadata["name"] = generated_name(prefix)
            obj = _new_object(request, decoded, request.field_manager)
            name = obj["metadata"]["name"]
            if not prefix or self._store.get(info.kind.key, info.scope, name) is None:
                break

        await self._plugins.wait(info.kind, info.scope)
        self._plugins.complete(request.user, info.kind, info.scope, obj)
        await self._writer.validate(replace(request, info=replace(info, name=name)), obj, None)

        def try_update(current: Stored | None) -> Object:
            if current is not None:
                raise errors.already_exists(info.kind.resource, name)
            request.warnings.extend(self._plugins.admit_create(info.kind, info.scope, obj))
            return obj

        return object_response(request, 201, await self._writer.write(request, replace(info, name=name), try_update))

    async def update(self, request: ApiRequest) -> Response:
        """PUT of an object, its status, its scale, or a namespace's finalizers."""
        info = request.info
        if info.subresource == "scale" and info.kind.scale:
            sent = read_options(request)
            return await self._update_scale(request, lambda _scale: sent)
        body = read_body(request)
        check_name(request, body.value)
        check_namespace(request, body.value)
        decoded = decode(request, body)
        stored = await self._update(request, lambda _old: decoded)
        return object_response(request, 200, stored)

    async def patch(self, request: ApiRequest, media: str) -> Response:
        """PATCH with a JSON patch, a merge patch or a strategic merge patch."""
        info, kind = request.info, request.info.kind
        patch = decode_json(request.body, "patch")
        if info.subresource == "scale" and kind.scale:
            return await self._update_scale(request, lambda scale: _patched_scale(request, scale, patch, media))

        def change(old: Object) -> DecodedObject:
            changed = patched_object(kind, in_version(kind, old), patch, media)
            check_name(request, changed)
            check_namespace(request, changed)
            return decode(request, Body(changed), patched=True)

        return object_response(request, 200, await self._update(request, change, patch=True))

    async def apply(self, request: ApiRequest) -> Response:
        """PATCH by server-side apply, which creates a missing object."""
        info, kind = request.info, request.info.kind
        if not request.query.get("fieldManager"):
            missing = field_errors.required("fieldManager", "is required for apply patch")
            raise errors.invalid_options("PatchOptions", missing)
        applied = decode_yaml(request.body, kind.resource.kind)
        if not isinstance(applied, dict):
            raise errors.bad_request("the body of an apply must be an object")
        check_name(request, applied)
        check_namespace(request, applied)
        manager = replace(request.field_manager, operation="Apply")
        force = read_flag(request.query, "force")
        created = False
        await self._plugins.wait(kind, info.scope)

        def propose(current: Stored | None) -> DecodedObject:
            old = None if current is None else in_version(kind, current.obj)
            merged = apply_object(kind, old, copied(applied), manager, force=force)
            return decode(request, Body(copied(merged)))

        def complete(decoded: DecodedObject, current: Stored | None) -> Object | Removed:
            nonlocal created
            created = current is None
            old = None if current is None else current.obj
            self._plugins.authorize(request.user, kind, request.attributes(""), decoded.obj, old)
            if old is None:
                self._authorizer.check(request.user, request.attributes("create"))
                new = _new_object(request, decoded, manager)
                self._plugins.complete(request.user, kind, info.scope, new)
                request.warnings.extend(self._plugins.admit_create(kind, info.scope, new))
                return new
            updated = updated_object(kind, decoded, old, manager, patch=True)
            return self._admit_update(request, updated, old)

        stored = await self._writer.write_admitted(request, propose, complete)
        return object_response(request, 201 if created else 200, stored)

    async def delete(self, request: ApiRequest) -> Response:
        info, kind = request.info, request.info.kind
        body = decode_body(request.body, request.content_type, kind="DeleteOptions").value if request.body else {}
        stored, removed = await self._writer.delete(info, read_delete_options(body, request.query), request)
        if not removed or kind.returns_deleted_object:
            return Response(200, object_body(kind, stored, request.representation, request.now))
        details = {
            "name": info.name,
            "group": kind.resource.group,
            "kind": kind.resource.plural,
            "uid": stored.obj["metadata"]["uid"],
        }
        return status_response(200, {key: value for key, value in details.items() if value})

    async def delete_collection(self, request: ApiRequest) -> Response:
        """DELETE of all objects that the selectors match; the response lists them."""
        kind = request.info.kind
        body = decode_json(request.body, "DeleteOptions") if request.body else {}
        options = read_delete_options(body, request.query)
        selection = read_selectors(request.query, kind)
        matched = [stored for stored in self._store.list(kind.key, request.info.namespace) if selection.matches(stored)]
        response = list_objects(self._store, request)
        await self._writer.delete_all(kind, matched, options, request)
        return response

    async def _update_scale(self, request: ApiRequest, change: Callable[[Object], Object]) -> Response:
        kind, paths = request.info.kind, request.info.kind.scale
        if paths is None:
            raise errors.method_not_allowed()

        def apply_scale(old: Object) -> DecodedObject:
            current = in_version(kind, old)
            scale = change(scale_of(paths, current))
            check_name(request, scale)
            return decode_object(kind, with_scale(paths, current, scale, custom=kind.custom))

        stored = await self._update(request, apply_scale, patch=True)
        return Response(200, encode(scale_of(paths, stored.obj)))

    async def _update(
        self, request: ApiRequest, change: Callable[[Object], DecodedObject], *, patch: bool = False
    ) -> Stored:
        """Stores the object that `change` makes of the stored one, after admission and validation."""
        info, kind = request.info, request.info.kind

        def propose(current: Stored | None) -> DecodedObject:
            return change(existing(info, current).obj)

        def complete(decoded: DecodedObject, current: Stored | None) -> Object | Removed:
            old = existing(info, current).obj
            if info.subresource == "finalize":
                finalizers = value_at(decoded.obj, "spec", "finalizers", default=[])
                return removed_if_finalized(kind, old | {"spec": (old.get("spec") or {}) | {"finalizers": finalizers}})
            self._plugins.authorize(request.user, kind, request.attributes(""), decoded.obj, old)
            updated = updated_object(kind, decoded, old, request.field_manager, patch=patch)
            request.warnings.extend(kind.strategy.warnings(updated))
            return self._admit_update(request, updated, old)

        return await self._writer.write_admitted(request, propose, complete)

    def _admit_update(self, request: ApiRequest, new: Object, old: Object) -> Object | Removed:
        """The new object, or its removal, if admission allows it."""
        info = request.info
        found = self._plugins.admit_update(request.user, info.kind, info.scope, new, old, info.subresource)
        request.warnings.extend(found)
        return removed_if_finalized(info.kind, new)


def _patched_scale(request: ApiRequest, scale: Object, patch: Any, media: str) -> Object:
    patched = patched_object(request.info.kind, scale, patch, media)
    check_options(request, patched)
    return patched


def _new_object(request: ApiRequest, decoded: DecodedObject, manager: FieldManager) -> Object:
    kind = request.info.kind
    uid = str(uuid.UUID(int=secrets.randbits(128), version=4))
    obj = new_object(
        kind, decoded, namespace=request.info.scope, uid=uid, manager=manager, user=request.user.as_object()
    )
    request.warnings.extend(kind.strategy.warnings(obj))
    return obj


def object_response(request: ApiRequest, code: int, stored: Stored) -> Response:
    kind = request.info.kind
    return Response(code, object_body(kind, stored, request.representation, request.now))


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
