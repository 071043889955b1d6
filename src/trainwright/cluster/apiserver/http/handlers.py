"""The handlers of all verbs, generic over resources; a kind's own behaviour is in its ResourceType."""

import asyncio
import secrets
import uuid
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv4Network
from typing import Any

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.access_control import AccessControl
from trainwright.cluster.apiserver.access.attributes import Attributes
from trainwright.cluster.apiserver.access.certificate_signer import check_subject, set_requestor
from trainwright.cluster.apiserver.access.escalation import check_escalation
from trainwright.cluster.apiserver.access.request_info import read_flag
from trainwright.cluster.apiserver.admission.plugin_chain import admit_create, admit_update
from trainwright.cluster.apiserver.admission.plugins.machine_annotations import check_machine_annotations
from trainwright.cluster.apiserver.admission.plugins.service_account import admit_pod, wait_for_default_account
from trainwright.cluster.apiserver.admission.webhooks.webhook_admission import WebhookAdmission
from trainwright.cluster.apiserver.http.bodies import (
    JSON,
    Body,
    decode_body,
    decode_json,
    decode_yaml,
    nested_object,
)
from trainwright.cluster.apiserver.http.listing import list_objects
from trainwright.cluster.apiserver.http.object_deleter import ObjectDeleter
from trainwright.cluster.apiserver.http.object_writer import ObjectWriter, existing, removed_if_finalized
from trainwright.cluster.apiserver.http.request_objects import (
    check_name,
    check_namespace,
    check_options,
    check_options_name,
    decode,
    read_body,
    read_options,
)
from trainwright.cluster.apiserver.http.requests import ApiRequest, ResourceInfo, read_delete_options, read_selectors
from trainwright.cluster.apiserver.http.responses import (
    Response,
    encode,
    in_version,
    object_body,
    scale_body,
    status_response,
)
from trainwright.cluster.apiserver.resources.crds import unenforced_rule_warnings
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.resources.strategies.certificate_strategy import condition_errors
from trainwright.cluster.apiserver.resources.strategies.webhook_strategies import match_condition_warnings
from trainwright.cluster.apiserver.storage.store import ObjectStore, Removed, Stored
from trainwright.cluster.apiserver.writes.create_update import (
    DecodedObject,
    decode_object,
    new_object,
    updated_object,
)
from trainwright.cluster.apiserver.writes.managed_fields import FieldManager
from trainwright.cluster.apiserver.writes.metadata import generated_name
from trainwright.cluster.apiserver.writes.patch import APPLY, patch_media_type, patched_object
from trainwright.cluster.apiserver.writes.server_side_apply import apply_object
from trainwright.cluster.apiserver.writes.subresources import bound_pod, scale_of, with_scale
from trainwright.objects import Object, copied, field_errors
from trainwright.objects.paths import value_at
from trainwright.objects.resources import (
    CERTIFICATE_SIGNING_REQUESTS,
    CUSTOM_RESOURCE_DEFINITIONS,
    PODS,
    ROLES,
    SECRETS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
)
from trainwright.objects.times import format_time

_GENERATED_NAME_TRIES = 8


class ResourceHandlers:
    """Handles requests for objects and collections. All state is in the store."""

    def __init__(
        self,
        store: ObjectStore,
        registry: Registry,
        access: AccessControl,
        webhooks: WebhookAdmission,
        *,
        service_network: IPv4Network,
        admits_accounts: bool,
    ) -> None:
        """With `admits_accounts` a pod needs a service account that exists, and gets its token as a volume."""
        self._admits_accounts = admits_accounts
        self._store = store
        self._registry = registry
        self._access = access
        self._writer = ObjectWriter(store, registry, webhooks, service_network)
        self._deleter = ObjectDeleter(store, registry, self._writer)

    async def complete_services(self) -> None:
        await self._writer.complete_services()

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
        stored = next(one for one in self._registry.types() if one.key == kind.key and one.conversion is None)
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
        if info.kind.resource == CERTIFICATE_SIGNING_REQUESTS:
            set_requestor(decoded.obj, request.user)
        decoded = await self._writer.mutate(request, decoded, None)
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

        check_machine_annotations(self._access.authorizer, request.user, info.kind.resource, obj)
        if info.kind.resource == CERTIFICATE_SIGNING_REQUESTS:
            await asyncio.to_thread(check_subject, obj)
        await self._wait_for_account(info)
        self._complete(info, obj)
        await self._writer.validate(replace(request, info=replace(info, name=name)), obj, None)

        def try_update(current: Stored | None) -> Object:
            if current is not None:
                raise errors.already_exists(info.kind.resource, name)
            request.warnings.extend(admit_create(self._store, info.kind, info.scope, obj))
            return obj

        return _object_response(request, 201, await self._writer.write(request, replace(info, name=name), try_update))

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
        return _object_response(request, 200, stored)

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

        return _object_response(request, 200, await self._update(request, change, patch=True))

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
        await self._wait_for_account(info)

        def propose(current: Stored | None) -> DecodedObject:
            old = None if current is None else in_version(kind, current.obj)
            merged = apply_object(kind, old, copied(applied), manager, force=force)
            decoded = decode(request, Body(copied(merged)))
            if current is None and kind.resource == CERTIFICATE_SIGNING_REQUESTS:
                set_requestor(decoded.obj, request.user)
            return decoded

        def complete(decoded: DecodedObject, current: Stored | None) -> Object | Removed:
            nonlocal created
            created = current is None
            self._check_escalation(request, decoded.obj, None if current is None else current.obj)
            if current is None:
                self._access.authorizer.check(request.user, request.attributes("create"))
                created_object = _new_object(request, decoded, manager)
                check_machine_annotations(self._access.authorizer, request.user, kind.resource, created_object)
                if kind.resource == CERTIFICATE_SIGNING_REQUESTS:
                    check_subject(created_object)
                self._complete(info, created_object)
                request.warnings.extend(admit_create(self._store, kind, info.scope, created_object))
                return created_object
            updated = updated_object(kind, decoded, current.obj, manager, patch=True)
            return removed_if_finalized(self._admit_update(request, updated, current.obj))

        stored = await self._writer.write_admitted(request, propose, complete)
        return _object_response(request, 201 if created else 200, stored)

    async def delete(self, request: ApiRequest) -> Response:
        info, kind = request.info, request.info.kind
        body = decode_body(request.body, request.content_type, kind="DeleteOptions").value if request.body else {}
        stored, removed = await self._deleter.delete(info, read_delete_options(body, request.query), request)
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
        await self._deleter.delete_all(kind, matched, options, request)
        return response

    async def bind(self, request: ApiRequest) -> Response:
        """POST pods/NAME/binding: assigns the pod to a node, once."""
        info = request.info
        body = read_options(request)
        node = nested_object(body, "target", kind="Binding").get("name")
        metadata = nested_object(body, "metadata", kind="Binding")
        if not node:
            raise errors.bad_request("Binding: target.name: Required value: the node that the pod shall run on")
        check_options_name(request, body)

        def try_update(current: Stored | None) -> Object:
            pod = existing(info, current).obj
            bound, uid = pod["spec"].get("nodeName"), pod["metadata"]["uid"]
            if metadata.get("uid") not in {None, "", uid}:
                why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {uid}"
                raise errors.conflict(info.kind.resource, info.name, why)
            if bound or pod["spec"].get("schedulingGates"):
                assigned = f'is already assigned to node "{bound}"'
                why = f"pod {info.name} {assigned if bound else 'has non-empty .spec.schedulingGates'}"
                error = errors.conflict(info.kind.resource, info.name, why)
                error.message = error.message.replace("on pods ", "on pods/binding ", 1)
                error.details = {"name": info.name, "kind": "pods/binding"}
                raise error
            bound_to_node = bound_pod(pod, str(node), format_time(request.now), metadata)
            check_machine_annotations(
                self._access.authorizer, request.user, PODS, bound_to_node, pod | {"spec": bound_to_node["spec"]}
            )
            return bound_to_node

        await self._writer.write(request, info, try_update)
        return status_response(201, {})

    async def approve(self, request: ApiRequest) -> Response:
        """PUT or PATCH of certificatesigningrequests/NAME/approval. An approved request is signed at once."""
        info, kind = request.info, request.info.kind
        stored = existing(info, self._store.get(kind.key, info.scope, info.name))
        self._check_approver(request, stored.obj["spec"]["signerName"])
        if request.verb == "patch":
            media = patch_media_type(request.content_type, kind)
            body = Body(patched_object(kind, stored.obj, decode_json(request.body, "patch"), media))
        else:
            body = read_body(request)
        check_name(request, body.value)
        sent = decode(request, body).obj
        if sent["metadata"].get("resourceVersion") not in {None, "", stored.obj["metadata"]["resourceVersion"]}:
            raise errors.modified(kind.resource, info.name)
        moment = {"lastUpdateTime": format_time(request.now), "lastTransitionTime": format_time(request.now)}
        wanted = value_at(sent, "status", "conditions", default=[])
        conditions = [moment | {key: value for key, value in one.items() if value} for one in wanted]
        changed = stored.obj | {"status": (stored.obj.get("status") or {}) | {"conditions": conditions}}
        if found := condition_errors(changed, stored.obj):
            raise errors.invalid(kind.resource, info.name, found)
        signer = self._access.certificates
        if signer is not None and signer.is_responsible(changed) and not request.dry_run:
            changed |= {"status": await asyncio.to_thread(signer.signed, changed, request.now)}

        def try_update(current: Stored | None) -> Object:
            if existing(info, current).version != stored.version:
                raise errors.modified(kind.resource, info.name)
            return changed

        return _object_response(request, 200, await self._writer.write(request, info, try_update))

    def _check_approver(self, request: ApiRequest, signer: str) -> None:
        """Approving needs a permission for the signer, by its name or for all of its domain."""
        names = (signer, f"{signer.partition('/')[0]}/*")
        wanted = [Attributes("approve", CERTIFICATE_SIGNING_REQUESTS.group, "signers", "", "", name) for name in names]
        if not any(self._access.authorizer.authorize(request.user, one).allowed for one in wanted):
            why = f'user not permitted to approve requests with signerName "{signer}"'
            raise errors.forbidden(request.info.kind.resource, request.info.name, why)

    async def evict(self, request: ApiRequest) -> Response:
        """POST pods/NAME/eviction: a delete with the options of the Eviction."""
        body = read_options(request)
        options = nested_object(body, "deleteOptions", kind="Eviction")
        check_options_name(request, body)
        await self._deleter.delete(request.info, read_delete_options(options, request.query), request)
        return status_response(201, {})

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
                return removed_if_finalized(old | {"spec": (old.get("spec") or {}) | {"finalizers": finalizers}})
            self._check_escalation(request, decoded.obj, old)
            updated = updated_object(kind, decoded, old, request.field_manager, patch=patch)
            request.warnings.extend(_unsupported(kind, updated))
            return removed_if_finalized(self._admit_update(request, updated, old))

        return await self._writer.write_admitted(request, propose, complete)

    def _admit_update(self, request: ApiRequest, new: Object, old: Object) -> Object:
        """The new object, if admission allows it."""
        info = request.info
        if info.subresource != "scale":
            check_machine_annotations(self._access.authorizer, request.user, info.kind.resource, new, old)
        request.warnings.extend(admit_update(self._store, info.kind, info.scope, new, old, info.subresource))
        return new

    async def _wait_for_account(self, info: ResourceInfo) -> None:
        if info.kind.resource == PODS and self._admits_accounts:
            await wait_for_default_account(self._store, info.scope)

    def _complete(self, info: ResourceInfo, obj: Object) -> None:
        """Adds to a new object what its service account decides. The client's managed fields do not include it."""
        if info.kind.resource == SECRETS:
            self._access.tokens.fill_secret(obj, self._access.authority)
        elif info.kind.resource == PODS and self._admits_accounts:
            admit_pod(self._store, obj, info.scope)

    def _check_escalation(self, request: ApiRequest, new: Object, old: Object | None) -> None:
        """Raises 403 for a role or binding that grants more than the user has."""
        resource = request.info.kind.resource
        if resource.group == ROLES.group:
            check_escalation(self._access.authorizer, request.user, resource, request.attributes(""), new, old)


def _patched_scale(request: ApiRequest, scale: Object, patch: Any, media: str) -> Object:
    patched = patched_object(request.info.kind, scale, patch, media)
    check_options(request, patched)
    return patched


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
