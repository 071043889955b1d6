"""The handlers of all verbs, generic over resources; a kind's own behaviour is in its ResourceType."""

import secrets
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.access_control import AccessControl
from trainwright.cluster.apiserver.access.escalation import check_escalation
from trainwright.cluster.apiserver.admission.service_account import admit_pod, wait_for_default_account
from trainwright.cluster.apiserver.admission.webhook_admission import WebhookAdmission
from trainwright.cluster.apiserver.admission.webhooks import CREATE, DELETE, UPDATE, Operation
from trainwright.cluster.apiserver.http.bodies import (
    JSON,
    Body,
    decode_apply,
    decode_body,
    decode_json,
    nested_object,
    strict_decoding_errors,
)
from trainwright.cluster.apiserver.http.listing import list_objects
from trainwright.cluster.apiserver.http.requests import ApiRequest, RequestInfo, read_delete_options, read_selectors
from trainwright.cluster.apiserver.http.responses import Response, encode, in_version, object_body, status_response
from trainwright.cluster.apiserver.resources.crds import CLEANUP_FINALIZER, unenforced_rule_warnings
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.resources.strategies.webhook_strategies import match_condition_warnings
from trainwright.cluster.apiserver.storage.store import ObjectStore, Removed, Stored, TryUpdate
from trainwright.cluster.apiserver.writes.admission import admit_create, admit_delete
from trainwright.cluster.apiserver.writes.create_update import (
    DecodedObject,
    decode_object,
    is_removable,
    new_object,
    updated_object,
)
from trainwright.cluster.apiserver.writes.deletion import DeleteOptions, deleted_object
from trainwright.cluster.apiserver.writes.managed_fields import FieldManager
from trainwright.cluster.apiserver.writes.metadata import generated_name
from trainwright.cluster.apiserver.writes.patch import APPLY, patched_object
from trainwright.cluster.apiserver.writes.quota_admission import QuotaLocks
from trainwright.cluster.apiserver.writes.server_side_apply import apply_object
from trainwright.cluster.apiserver.writes.service_allocator import ServiceAllocator
from trainwright.cluster.apiserver.writes.subresources import bound_pod, scale_of, with_scale
from trainwright.objects import Object, copied, field_errors
from trainwright.objects.paths import value_at
from trainwright.objects.resources import (
    CUSTOM_RESOURCE_DEFINITIONS,
    ENDPOINTS,
    NAMESPACES,
    PODS,
    ROLES,
    SECRETS,
    SERVICES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from trainwright.objects.times import format_time

_GENERATED_NAME_TRIES = 8
_WRITE_TRIES = 5


Propose = Callable[[Stored | None], DecodedObject]
"""From the stored object to the one that the client wants."""

Complete = Callable[[DecodedObject, Stored | None], Object | Removed]
"""From the wanted object to the one to store: defaults, validation, managed fields."""


class _ChangedMeanwhile(Exception):  # noqa: N818 - not an error
    """Another write came first."""


class ResourceHandlers:
    """Handles requests for objects and collections. All state is in the store."""

    def __init__(
        self,
        store: ObjectStore,
        registry: Registry,
        access: AccessControl,
        webhooks: WebhookAdmission,
        *,
        admits_accounts: bool,
    ) -> None:
        """With `admits_accounts` a pod needs a service account that exists, and gets its token as a volume."""
        self._admits_accounts = admits_accounts
        self._store = store
        self._registry = registry
        self._access = access
        self._webhooks = webhooks
        self._services = ServiceAllocator(store)
        self._quotas = QuotaLocks(store)

    async def complete_services(self) -> None:
        await self._services.complete_stored()

    def get(self, request: ApiRequest) -> Response:
        info, kind = request.info, request.info.kind
        stored = _existing(info, self._store.get(kind.key, info.scope, info.name))
        if info.subresource == "scale" and kind.scale:
            return Response(200, encode(scale_of(kind.scale, stored.obj)))
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
            current = _existing(info, self._store.get(kind.key, info.scope, info.name))
            body = Body(patched_object(kind, in_version(kind, current.obj), decode_json(request.body, "patch"), media))
        else:
            body = _read_body(request)
        decoded = _decode(request, body).obj
        if request.method == "POST" and (found := conversion.validate_new(decoded)):
            raise errors.invalid(kind.resource, decoded["metadata"].get("name", ""), found)
        stored = next(one for one in self._registry.types() if one.key == kind.key and one.conversion is None)
        converted = encode(conversion.to_storage(decoded) | {"apiVersion": stored.resource.api_version})
        inner = replace(request, info=replace(info, kind=stored), body=converted, content_type=JSON, accept=JSON)
        response = await (self.create(inner) if request.method == "POST" else self.update(inner))
        return replace(response, body=encode(in_version(kind, decode_json(response.body, "Event"))))

    async def create(self, request: ApiRequest) -> Response:
        """POST to a collection."""
        info = request.info
        if info.kind.resource.namespaced and info.namespace is None:
            raise errors.method_not_allowed()
        body = _read_body(request)
        _check_namespace(request, body.value)
        decoded = _decode(request, body)
        metadata = decoded.obj["metadata"]
        if metadata.get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        decoded = await self._admit(request, decoded, None)
        metadata = decoded.obj["metadata"]
        self._check_escalation(request, decoded.obj, None)
        prefix = "" if metadata.get("name") else str(metadata.get("generateName") or "")
        for _ in range(_GENERATED_NAME_TRIES if prefix else 1):
            if prefix:
                metadata["name"] = generated_name(prefix)
            obj = _new_object(request, decoded, request.field_manager)
            name = obj["metadata"]["name"]
            if not prefix or self._store.get(info.kind.key, info.scope, name) is None:
                break

        await self._wait_for_account(info)
        self._complete(info, obj)
        await self._validate(replace(request, info=replace(info, name=name)), obj, None)

        def try_update(current: Stored | None) -> Object:
            if current is not None:
                raise errors.already_exists(info.kind.resource, name)
            admit_create(self._store, info.kind, info.scope, obj)
            return obj

        return _object_response(request, 201, await self._write(request, replace(info, name=name), try_update))

    async def update(self, request: ApiRequest) -> Response:
        """PUT of an object, its status, its scale, or a namespace's finalizers."""
        info = request.info
        body = _read_body(request)
        if info.subresource == "scale" and info.kind.scale:
            return await self._update_scale(request, lambda _scale: body.value)
        _check_name(request, body.value)
        _check_namespace(request, body.value)
        decoded = _decode(request, body)
        stored = await self._update(request, lambda _old: decoded)
        return _object_response(request, 200, stored)

    async def patch(self, request: ApiRequest, media: str) -> Response:
        """PATCH with a JSON patch, a merge patch or a strategic merge patch."""
        info, kind = request.info, request.info.kind
        patch = decode_json(request.body, "patch")
        if info.subresource == "scale" and kind.scale:
            return await self._update_scale(request, lambda scale: patched_object(kind, scale, patch, media))

        def change(old: Object) -> DecodedObject:
            changed = patched_object(kind, in_version(kind, old), patch, media)
            _check_name(request, changed)
            return _decode(request, Body(changed), patched=True)

        return _object_response(request, 200, await self._update(request, change, patch=True))

    async def apply(self, request: ApiRequest) -> Response:
        """PATCH by server-side apply, which creates a missing object."""
        info, kind = request.info, request.info.kind
        if not request.query.get("fieldManager"):
            missing = field_errors.required("fieldManager", "is required for apply patch")
            raise errors.invalid_options("PatchOptions", missing)
        applied = decode_apply(request.body, kind.resource.kind)
        if not isinstance(applied, dict):
            raise errors.bad_request("the body of an apply must be an object")
        if not value_at(applied, "metadata", "name"):
            why = "was undeterminable: name must be provided"
            raise errors.bad_request(f"the name of the object ({info.name} based on URL) {why}")
        _check_name(request, applied)
        _check_namespace(request, applied)
        manager = replace(request.field_manager, operation="Apply")
        force = request.query.get("force", "") == "true"
        created = False
        await self._wait_for_account(info)

        def propose(current: Stored | None) -> DecodedObject:
            old = None if current is None else in_version(kind, current.obj)
            merged = apply_object(kind, old, copied(applied), manager, force=force)
            return _decode(request, Body(copied(merged)))

        def complete(decoded: DecodedObject, current: Stored | None) -> Object | Removed:
            nonlocal created
            created = current is None
            self._check_escalation(request, decoded.obj, None if current is None else current.obj)
            if current is None:
                self._access.authorizer.check(request.user, request.attributes("create"))
                created_object = _new_object(request, decoded, manager)
                self._complete(info, created_object)
                admit_create(self._store, kind, info.scope, created_object)
                return created_object
            return _removed_if_finalized(updated_object(kind, decoded, current.obj, manager, patch=True))

        stored = await self._write_admitted(request, propose, complete)
        return _object_response(request, 201 if created else 200, stored)

    async def delete(self, request: ApiRequest) -> Response:
        info, kind = request.info, request.info.kind
        body = decode_body(request.body, request.content_type, kind="DeleteOptions").value if request.body else {}
        stored, removed = await self._delete(info, read_delete_options(body, request.query), request)
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
        matched = [one for one in self._store.list(kind.key, request.info.namespace) if selection.matches(one)]
        response = list_objects(self._store, request)
        await self._delete_all(kind, matched, options, request)
        return response

    async def bind(self, request: ApiRequest) -> Response:
        """POST pods/NAME/binding: assigns the pod to a node, once."""
        info = request.info
        body = _read_options(request, "Binding")
        node = nested_object(body, "target", kind="Binding").get("name")
        metadata = nested_object(body, "metadata", kind="Binding")
        if not node:
            raise errors.bad_request("Binding: target.name: Required value: the node that the pod shall run on")

        def try_update(current: Stored | None) -> Object:
            pod = _existing(info, current).obj
            bound, uid = pod["spec"].get("nodeName"), pod["metadata"]["uid"]
            if metadata.get("uid") not in {None, "", uid}:
                why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {uid}"
                raise errors.conflict(info.kind.resource, info.name, why)
            if bound:
                why = f'pod {info.name} is already assigned to node "{bound}"'
                error = errors.conflict(info.kind.resource, info.name, why)
                error.message = error.message.replace("on pods ", "on pods/binding ", 1)
                error.details = {"name": info.name, "kind": "pods/binding"}
                raise error
            return bound_pod(pod, str(node), format_time(request.now), metadata)

        await self._write(request, info, try_update)
        return status_response(201, {})

    async def evict(self, request: ApiRequest) -> Response:
        """POST pods/NAME/eviction: a delete with the options of the Eviction."""
        body = _read_options(request, "Eviction")
        options = nested_object(body, "deleteOptions", kind="Eviction")
        await self._delete(request.info, read_delete_options(options, request.query), request)
        return status_response(201, {})

    async def _delete(self, info: RequestInfo, options: DeleteOptions, request: ApiRequest) -> tuple[Stored, bool]:
        """The object after the delete, and whether it was removed."""
        kind = info.kind
        removed = False
        target = replace(request, info=info, method="DELETE")
        operation = _operation(target, DELETE, dry_run=options.dry_run or request.dry_run)
        if self._webhooks.concerns(operation):
            doomed = _existing(info, self._store.get(kind.key, info.scope, info.name)).obj
            await self._webhooks.mutate(operation, None, doomed, request.warnings, lambda obj: obj)
            await self._webhooks.validate(operation, None, doomed, request.warnings)

        def try_update(current: Stored | None) -> Object | Removed:
            nonlocal removed
            obj = _existing(info, current).obj
            if kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
                obj = _with_cleanup_finalizer(obj, needed=self._store.count(info.name) > 0)
            admit_delete(kind, info.name)
            deleted = deleted_object(kind, obj, options, request.now)
            removed = isinstance(deleted, Removed)
            return deleted

        stored = await self._write(request, info, try_update, dry_run=options.dry_run or request.dry_run)
        if kind.resource == CUSTOM_RESOURCE_DEFINITIONS and not removed and not options.dry_run:
            for served in self._registry.of_crd(info.name)[:1]:
                await self._delete_all(served, self._store.list(served.key), DeleteOptions(), request)
        if kind.resource == SERVICES and removed and not (options.dry_run or request.dry_run):
            # A new Service of this name must not start with the old endpoints.
            endpoints = self._registry.of(ENDPOINTS)
            old = self._store.get(endpoints.key, info.scope, info.name)
            await self._delete_all(endpoints, [old] if old else [], DeleteOptions(), request)
        return stored, removed

    async def _delete_all(
        self, kind: ResourceType, objects: Iterable[Stored], options: DeleteOptions, request: ApiRequest
    ) -> None:
        for stored in objects:
            try:
                await self._delete(RequestInfo(kind, stored.key[0] or None, stored.key[1]), options, request)
            except errors.StatusError as error:
                if error.code != 404:
                    raise

    async def _finalize_crd(self, kind: ResourceType, request: ApiRequest) -> None:
        """Removes a deleted CRD after its last custom resource."""
        if self._store.count(kind.key):
            return
        info = RequestInfo(self._registry.of(CUSTOM_RESOURCE_DEFINITIONS), None, kind.key)
        stored = self._store.get(info.kind.key, "", kind.key)
        if stored is None or "deletionTimestamp" not in stored.obj["metadata"]:
            return

        def try_update(current: Stored | None) -> Object | Removed:
            return _removed_if_finalized(_with_cleanup_finalizer(_existing(info, current).obj, needed=False))

        await self._write(request, info, try_update, dry_run=False)

    async def _update_scale(self, request: ApiRequest, change: Callable[[Object], Object]) -> Response:
        kind, paths = request.info.kind, request.info.kind.scale
        if paths is None:
            raise errors.method_not_allowed()

        def apply_scale(old: Object) -> DecodedObject:
            current = in_version(kind, old)
            return decode_object(kind, with_scale(paths, current, change(scale_of(paths, current)), custom=kind.custom))

        stored = await self._update(request, apply_scale, patch=True)
        return Response(200, encode(scale_of(paths, stored.obj)))

    async def _update(
        self, request: ApiRequest, change: Callable[[Object], DecodedObject], *, patch: bool = False
    ) -> Stored:
        """Stores the object that `change` makes of the stored one, after admission and validation."""
        info, kind = request.info, request.info.kind

        def propose(current: Stored | None) -> DecodedObject:
            return change(_existing(info, current).obj)

        def complete(decoded: DecodedObject, current: Stored | None) -> Object | Removed:
            old = _existing(info, current).obj
            if info.subresource == "finalize":
                finalizers = value_at(decoded.obj, "spec", "finalizers", default=[])
                return _removed_if_finalized(old | {"spec": (old.get("spec") or {}) | {"finalizers": finalizers}})
            self._check_escalation(request, decoded.obj, old)
            updated = updated_object(kind, decoded, old, request.field_manager, patch=patch)
            request.warnings.extend(_unsupported(kind, updated))
            return _removed_if_finalized(updated)

        return await self._write_admitted(request, propose, complete)

    async def _write_admitted(self, request: ApiRequest, propose: Propose, complete: Complete) -> Stored:
        """Stores what `complete` makes of the proposed object.

        If webhooks have to be asked, the object is not locked meanwhile: the write is tried again if another one came
        first, as often as the real server does it.
        """
        info, warnings = request.info, list(request.warnings)
        operation = _operation(request, UPDATE)
        if not self._webhooks.concerns(operation) and not self._webhooks.concerns(replace(operation, verb=CREATE)):
            return await self._write(request, info, lambda current: complete(propose(current), current))
        for _ in range(_WRITE_TRIES):
            request.warnings[:] = warnings
            current = self._store.get(info.kind.key, info.scope, info.name)
            old = None if current is None else in_version(info.kind, current.obj)
            result = complete(await self._admit(request, _copy(propose(current)), old), current)
            new = result.last if isinstance(result, Removed) else result
            await self._validate(request, in_version(info.kind, new), old)
            if request.dry_run or current is self._store.get(info.kind.key, info.scope, info.name):
                with suppress(_ChangedMeanwhile):
                    return await self._write(request, info, _unless_changed(current, result))
        raise errors.modified(info.kind.resource, info.name)

    async def _admit(self, request: ApiRequest, decoded: DecodedObject, old: Object | None) -> DecodedObject:
        """The object after the mutating webhooks; decoded again if one has changed it."""
        kind, info = request.info.kind, request.info
        operation = _operation(request, CREATE if old is None else UPDATE)
        if not self._webhooks.concerns(operation):
            return decoded
        sent = copied(decoded.obj)
        kind.strategy.set_defaults(sent)

        def default(obj: Object) -> Object:
            if not isinstance(obj.get("metadata"), dict):
                raise errors.internal("an admission webhook removed the metadata of the object")
            fresh = decode_object(kind, copied(obj)).obj
            kind.strategy.set_defaults(fresh)
            return fresh

        changed = await self._webhooks.mutate(operation, sent, old, request.warnings, default)
        if changed is sent or changed is None:
            return decoded
        name = changed["metadata"].get("name")
        if info.name and name != info.name:
            raise errors.bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({info.name})"
            )
        return decode_object(kind, changed)

    async def _validate(self, request: ApiRequest, new: Object, old: Object | None) -> None:
        operation = _operation(request, CREATE if old is None else UPDATE)
        await self._webhooks.validate(operation, new, old, request.warnings)

    async def _wait_for_account(self, info: RequestInfo) -> None:
        if info.kind.resource == PODS and self._admits_accounts:
            await wait_for_default_account(self._store, info.scope)

    def _complete(self, info: RequestInfo, obj: Object) -> None:
        """Adds to a new object what its service account decides. The client's managed fields do not include it."""
        if info.kind.resource == SECRETS:
            self._access.tokens.fill_secret(obj, self._access.authority)
        elif info.kind.resource == PODS and self._admits_accounts:
            admit_pod(self._store, obj, info.scope)

    def _check_escalation(self, request: ApiRequest, new: Object, old: Object | None) -> None:
        """Nobody writes a role or binding that gives more than the writer has."""
        resource = request.info.kind.resource
        if resource.group == ROLES.group:
            check_escalation(self._access.authorizer, request.user, resource, request.attributes(""), new, old)

    async def _write(
        self, request: ApiRequest, info: RequestInfo, try_update: TryUpdate, *, dry_run: bool | None = None
    ) -> Stored:
        """Stores the result of `try_update`, except in a dry run."""
        kind = info.kind
        dry_run = request.dry_run if dry_run is None else dry_run
        if kind.resource == SERVICES:
            try_update = self._services.allocating(try_update, (info.scope, info.name), dry_run=dry_run)
        if dry_run:
            current = self._store.get(kind.key, info.scope, info.name)
            result = try_update(current)
            obj = result.last if isinstance(result, Removed) else result
            return Stored((info.scope, info.name), current.version if current else 0, encode(obj), obj)
        async with self._quotas.hold(info.scope):
            change = await self._store.guaranteed_update(kind.key, info.scope, info.name, try_update)
        if change is None:
            return _existing(info, self._store.get(kind.key, info.scope, info.name))
        if change.removed and kind.custom:
            await self._finalize_crd(kind, request)
        return change.new


def _unless_changed(expected: Stored | None, result: Object | Removed) -> TryUpdate:
    def try_update(current: Stored | None) -> Object | Removed:
        if current is not expected:
            raise _ChangedMeanwhile
        return result

    return try_update


def _copy(decoded: DecodedObject) -> DecodedObject:
    """A write that is tried again starts from the same object."""
    return DecodedObject(copied(decoded.obj), decoded.findings)


def _operation(request: ApiRequest, verb: str, *, dry_run: bool | None = None) -> Operation:
    """The write as webhooks see it."""
    info = request.info
    options = {
        "fieldManager": request.query.get("fieldManager"),
        "fieldValidation": request.query.get("fieldValidation"),
    }
    dry = request.dry_run if dry_run is None else dry_run
    kinds = {CREATE: "CreateOptions", DELETE: "DeleteOptions"}
    kind = "PatchOptions" if request.method == "PATCH" else kinds.get(verb, "UpdateOptions")
    shown: Object = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    shown |= {key: value for key, value in options.items() if value}
    is_namespace = info.kind.resource == NAMESPACES
    return Operation(
        verb=verb,
        kind=info.kind,
        subresource=info.subresource,
        namespace=info.name if is_namespace else info.scope,
        name=info.name,
        user=request.user,
        dry_run=dry,
        options=shown | ({"dryRun": ["All"]} if dry else {}),
    )


def _existing(info: RequestInfo, stored: Stored | None) -> Stored:
    if stored is None:
        raise errors.not_found(info.kind.resource, info.name)
    return stored


def _new_object(request: ApiRequest, decoded: DecodedObject, manager: FieldManager) -> Object:
    kind = request.info.kind
    uid = str(uuid.UUID(int=secrets.randbits(128), version=4))
    obj = new_object(kind, decoded, namespace=request.info.scope, uid=uid, manager=manager)
    request.warnings.extend(_unsupported(kind, obj))
    return obj


def _unsupported(kind: ResourceType, obj: Object) -> list[str]:
    """Warnings about fields that this server stores and cannot honour."""
    if kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
        return unenforced_rule_warnings(obj)
    return match_condition_warnings(obj) if kind.resource.group == VALIDATING_WEBHOOK_CONFIGURATIONS.group else []


def _object_response(request: ApiRequest, code: int, stored: Stored) -> Response:
    kind = request.info.kind
    return Response(code, object_body(kind, stored, request.representation, request.now))


def _read_body(request: ApiRequest) -> Body:
    return decode_body(request.body, request.content_type, kind=request.info.kind.resource.kind)


def _read_options(request: ApiRequest, kind: str) -> Object:
    """The body of a request to a subresource."""
    body = decode_body(request.body, request.content_type, kind=kind).value
    if not isinstance(body, dict):
        raise errors.bad_request(f"the body must be a {kind} object")
    return body


def _decode(request: ApiRequest, body: Body, *, patched: bool = False) -> DecodedObject:
    """Decodes the body; unknown and repeated fields are refused or warned about, as `fieldValidation` demands."""
    kind, validation = request.info.kind, request.field_validation
    sent = encode(body.value).decode() if patched and validation == "Strict" else ""
    decoded = decode_object(kind, body.value)
    if validation == "Ignore":
        return decoded
    found = strict_decoding_errors(body, decoded.findings.unknown)
    if found and validation == "Strict":
        why = "strict decoding error: " + ", ".join(found)
        raise errors.invalid_patch(sent, why) if patched else errors.undecodable(kind.resource, why)
    request.warnings.extend(found)
    return decoded


def _check_name(request: ApiRequest, obj: object) -> None:
    name, expected = value_at(obj, "metadata", "name"), request.info.name
    if name is not None and name != expected:
        raise errors.bad_request(f"the name of the object ({name}) does not match the name on the URL ({expected})")


def _check_namespace(request: ApiRequest, obj: object) -> None:
    namespace = value_at(obj, "metadata", "namespace")
    if namespace and namespace != request.info.scope:
        message = "the namespace of the provided object does not match the namespace sent on the request"
        raise errors.bad_request(message)


def _removed_if_finalized(obj: Object) -> Object | Removed:
    return Removed(obj) if is_removable(obj) else obj


def _with_cleanup_finalizer(crd: Object, *, needed: bool) -> Object:
    """The CRD with the finalizer that keeps it until its custom resources are removed, or without it."""
    finalizers = [one for one in crd["metadata"].get("finalizers") or [] if one != CLEANUP_FINALIZER]
    if needed:
        finalizers.append(CLEANUP_FINALIZER)
    return crd | {"metadata": crd["metadata"] | {"finalizers": finalizers}}
