"""Handlers of subresources that one kind alone has: binding and eviction of pods, approval of certificates, tokens."""

import asyncio

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.access_control import AccessControl
from trainwright.cluster.apiserver.admission.plugins.certificate_requests import check_signer_permission
from trainwright.cluster.apiserver.admission.plugins.machine_annotations import check_machine_annotations
from trainwright.cluster.apiserver.http.handlers import object_response
from trainwright.cluster.apiserver.http.object_writer import ObjectWriter, existing
from trainwright.cluster.apiserver.http.request_bodies import (
    Body,
    check_name,
    check_options_name,
    decode,
    decode_json,
    nested_object,
    read_body,
    read_options,
)
from trainwright.cluster.apiserver.http.requests import ApiRequest, read_delete_options
from trainwright.cluster.apiserver.http.responses import Response, encode, status_response
from trainwright.cluster.apiserver.resources.strategies.certificate_strategy import condition_errors
from trainwright.cluster.apiserver.storage.store import ObjectStore, Stored
from trainwright.cluster.apiserver.writes.patch import patch_media_type, patched_object
from trainwright.cluster.apiserver.writes.subresources import bound_pod
from trainwright.objects import Object
from trainwright.objects.paths import value_at
from trainwright.objects.times import format_time


class SubresourceHandlers:
    def __init__(self, store: ObjectStore, access: AccessControl, writer: ObjectWriter) -> None:
        self._store = store
        self._access = access
        self._writer = writer

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
            before = pod | {"spec": bound_to_node["spec"]}
            check_machine_annotations(self._access.authorizer, request.user, info.kind.resource, bound_to_node, before)
            return bound_to_node

        await self._writer.write(request, info, try_update)
        return status_response(201, {})

    async def approve(self, request: ApiRequest) -> Response:
        """PUT or PATCH of certificatesigningrequests/NAME/approval. An approved request is signed at once."""
        info, kind = request.info, request.info.kind
        stored = existing(info, self._store.get(kind.key, info.scope, info.name))
        check_signer_permission(self._access.authorizer, request.user, "approve", stored.obj)
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
        conditions = [moment | {key: value for key, value in condition.items() if value} for condition in wanted]
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

        return object_response(request, 200, await self._writer.write(request, info, try_update))

    async def evict(self, request: ApiRequest) -> Response:
        """POST pods/NAME/eviction: a delete with the options of the Eviction."""
        body = read_options(request)
        options = nested_object(body, "deleteOptions", kind="Eviction")
        check_options_name(request, body)
        await self._writer.delete(request.info, read_delete_options(options, request.query), request)
        return status_response(201, {})

    def request_token(self, request: ApiRequest) -> Response:
        """POST serviceaccounts/NAME/token."""
        info, body = request.info, read_options(request)
        return Response(201, encode(self._access.tokens.request(info.scope, info.name, body, request.now)))
