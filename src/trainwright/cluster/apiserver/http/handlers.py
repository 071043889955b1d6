"""The verbs of the API, generic over every resource: what is specific to a kind comes from its row in the registry."""

import secrets
import uuid
from collections.abc import Callable
from dataclasses import replace

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.http.bodies import (
    Body,
    decode_apply,
    decode_body,
    decode_json,
    part_of,
    strict_decoding_errors,
)
from trainwright.cluster.apiserver.http.calls import Answer, Call, status_answer
from trainwright.cluster.apiserver.http.listing import list_answer
from trainwright.cluster.apiserver.http.requests import Target, read_selection
from trainwright.cluster.apiserver.http.tables import encode, in_version, object_body
from trainwright.cluster.apiserver.resources.crds import CLEANUP_FINALIZER, unenforced_rule_warnings
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.storage.store import Decide, ObjectStore, Removed, Stored
from trainwright.cluster.apiserver.writes.create_update import (
    Draft,
    admitted,
    is_ready_to_go,
    new_object,
    updated_object,
)
from trainwright.cluster.apiserver.writes.deletion import DeleteOptions, deleted_object, read_delete_options
from trainwright.cluster.apiserver.writes.managed_fields import Author
from trainwright.cluster.apiserver.writes.metadata import generated_name
from trainwright.cluster.apiserver.writes.requested_change import changed_by_patch, scale_of, with_scale
from trainwright.cluster.apiserver.writes.server_side_apply import applied
from trainwright.objects import Object, copied, field_errors
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES
from trainwright.objects.times import format_time

_GENERATED_NAME_TRIES = 8


class ObjectApi:
    """Answers calls on objects and collections. All state is in the store."""

    def __init__(self, store: ObjectStore, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    def get(self, call: Call) -> Answer:
        kind = call.target.kind
        stored = self._stored(call.target)
        if call.target.subresource == "scale" and kind.scale:
            return Answer(200, encode(scale_of(kind.scale, stored.obj)))
        return Answer(200, object_body(kind, stored, call.form, call.now))

    def list(self, call: Call) -> Answer:
        return list_answer(self._store, call)

    async def create(self, call: Call) -> Answer:
        """POST to a collection."""
        target = call.target
        if target.kind.resource.namespaced and target.namespace is None:
            raise errors.method_not_allowed()
        body = self._body(call)
        self._check_namespace(call, body.value)
        draft = self._admit(call, body)
        metadata = draft.obj["metadata"]
        if metadata.get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        prefix = "" if metadata.get("name") else str(metadata.get("generateName") or "")
        for _ in range(_GENERATED_NAME_TRIES if prefix else 1):
            if prefix:
                metadata["name"] = generated_name(prefix)
            obj = self._new(call, draft)
            name = obj["metadata"]["name"]
            if not prefix or self._store.get(target.kind.key, target.scope, name) is None:
                break

        def decide(current: Stored | None) -> Object:
            if current is not None:
                raise errors.already_exists(target.kind.resource, name)
            self._check_lifecycle(target, name)
            return obj

        return self._answer(call, 201, await self._write(call, name, decide))

    async def replace(self, call: Call) -> Answer:
        """PUT of an object, its status, its scale, or a namespace's finalizers."""
        target = call.target
        body = self._body(call)
        if target.subresource == "scale" and target.kind.scale:
            return await self._rescale(call, lambda _scale: body.value)
        if isinstance(body.value, dict):
            self._check_name(call, body.value)
        self._check_namespace(call, body.value)
        draft = self._admit(call, body)
        return self._answer(call, 200, await self._write(call, target.name, self._updating(call, lambda _old: draft)))

    async def patch(self, call: Call, media: str) -> Answer:
        """PATCH with a merge, JSON or strategic patch."""
        kind = call.target.kind
        patch = decode_json(call.body, "patch")
        if call.target.subresource == "scale" and kind.scale:
            return await self._rescale(call, lambda scale: changed_by_patch(kind, scale, patch, media))

        def change(old: Object) -> Draft:
            changed = changed_by_patch(kind, in_version(kind, old), patch, media)
            self._check_name(call, changed)
            return self._admit(call, Body(changed), patched=True)

        stored = await self._write(call, call.target.name, self._updating(call, change, patch=True))
        return self._answer(call, 200, stored)

    async def apply(self, call: Call) -> Answer:
        """PATCH by server-side apply: creates what is not there."""
        target, kind = call.target, call.target.kind
        if not call.query.get("fieldManager"):
            missing = field_errors.required("fieldManager", "is required for apply patch")
            raise errors.invalid_options("PatchOptions", missing)
        wish = decode_apply(call.body, kind.resource.kind)
        if not isinstance(wish, dict):
            raise errors.bad_request("the body of an apply must be an object")
        if not isinstance(wish.get("metadata"), dict) or not wish["metadata"].get("name"):
            why = "was undeterminable: name must be provided"
            raise errors.bad_request(f"the name of the object ({target.name} based on URL) {why}")
        self._check_name(call, wish)
        self._check_namespace(call, wish)
        author = replace(call.author, operation="Apply")
        force = call.query.get("force", "") == "true"
        created = False

        def decide(current: Stored | None) -> Object | Removed:
            nonlocal created
            created = current is None
            old = None if current is None else in_version(kind, current.obj)
            merged = applied(kind, old, copied(wish), author, force=force)
            draft = self._admit(call, Body(copied(merged)))
            if current is None:
                self._check_lifecycle(target, target.name)
                return self._new(call, draft, author)
            return _or_removed(updated_object(kind, draft, current.obj, author, patch=True))

        stored = await self._write(call, target.name, decide)
        return self._answer(call, 201 if created else 200, stored)

    async def delete(self, call: Call) -> Answer:
        raw = decode_body(call.body, call.content_type, kind="DeleteOptions").value if call.body else {}
        options = read_delete_options(raw, dict(call.query))
        stored, gone = await self._delete(call.target, options, call)
        kind = call.target.kind
        if not gone or kind.returns_deleted_object:
            return Answer(200, object_body(kind, stored, call.form, call.now))
        details = {
            "name": call.target.name,
            "group": kind.resource.group,
            "kind": kind.resource.plural,
            "uid": stored.obj["metadata"]["uid"],
        }
        return status_answer(200, {key: value for key, value in details.items() if value})

    async def delete_collection(self, call: Call) -> Answer:
        """DELETE of everything that the selectors match; answers with what they matched."""
        kind = call.target.kind
        raw = decode_json(call.body, "DeleteOptions") if call.body else {}
        options = read_delete_options(raw, dict(call.query))
        selection = read_selection(call.query, kind)
        matched = [one for one in self._store.list(kind.key, call.target.namespace) if selection.matches(one)]
        answer = list_answer(self._store, call)
        for stored in matched:
            try:
                await self._delete(Target(kind, stored.key[0] or None, stored.key[1]), options, call)
            except errors.ApiFailure as failure:
                if failure.code != 404:
                    raise
        return answer

    async def bind(self, call: Call) -> Answer:
        """POST pods/NAME/binding: the pod gets its node, once."""
        body = self._plain_body(call, "Binding")
        node = part_of(body, "target", kind="Binding").get("name")
        given = part_of(body, "metadata", kind="Binding")
        if not node:
            raise errors.bad_request("Binding: target.name: Required value: the node that the pod shall run on")

        def decide(current: Stored | None) -> Object:
            pod = self._present(call.target, current).obj
            name, bound, uid = call.target.name, pod["spec"].get("nodeName"), pod["metadata"]["uid"]
            if given.get("uid") not in {None, "", uid}:
                why = f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {uid}"
                raise errors.conflict(call.target.kind.resource, name, why)
            if bound:
                why = f'pod {name} is already assigned to node "{bound}"'
                failure = errors.conflict(call.target.kind.resource, name, why)
                failure.message = failure.message.replace("on pods ", "on pods/binding ", 1)
                failure.details = {"name": name, "kind": "pods/binding"}
                raise failure
            return bound_pod(pod, str(node), format_time(call.now), given)

        await self._write(call, call.target.name, decide)
        return status_answer(201, {})

    async def evict(self, call: Call) -> Answer:
        """POST pods/NAME/eviction: a delete with the eviction's own options."""
        body = self._plain_body(call, "Eviction")
        options = part_of(body, "deleteOptions", kind="Eviction")
        await self._delete(call.target, read_delete_options(options, dict(call.query)), call)
        return status_answer(201, {})

    async def _delete(self, target: Target, options: DeleteOptions, call: Call) -> tuple[Stored, bool]:
        """The object as it was left, and whether it is gone."""
        kind = target.kind
        gone = False

        def decide(current: Stored | None) -> Object | Removed:
            nonlocal gone
            obj = self._present(target, current).obj
            if kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
                obj = self._held_by_objects(obj)
            deleted = deleted_object(kind, obj, options, call.now)
            gone = isinstance(deleted, Removed)
            return deleted

        stored = await self._write(call, target.name, decide, target=target, dry_run=options.dry_run or call.dry_run)
        if kind.resource == CUSTOM_RESOURCE_DEFINITIONS and not gone and not options.dry_run:
            await self._delete_objects_of(target.name, call)
        return stored, gone

    def _held_by_objects(self, crd: Object) -> Object:
        """A CRD goes after its last object."""
        finalizers = [one for one in crd["metadata"].get("finalizers") or [] if one != CLEANUP_FINALIZER]
        if self._store.count(_objects_key(crd)):
            finalizers.append(CLEANUP_FINALIZER)
        return crd | {"metadata": crd["metadata"] | {"finalizers": finalizers}}

    async def _delete_objects_of(self, name: str, call: Call) -> None:
        types = self._registry.of_crd(name)
        if not types:
            return
        for stored in self._store.list(types[0].key):
            target = Target(types[0], stored.key[0] or None, stored.key[1])
            try:
                await self._delete(target, DeleteOptions(), call)
            except errors.ApiFailure as failure:
                if failure.code != 404:
                    raise

    async def _release_definition(self, kind: ResourceType, call: Call) -> None:
        """After the last object of a deleted CRD is gone, the CRD follows."""
        if self._store.count(kind.key):
            return
        crds = self._registry.of(CUSTOM_RESOURCE_DEFINITIONS)
        stored = self._store.get(crds.key, "", kind.key)
        if stored is None or "deletionTimestamp" not in stored.obj["metadata"]:
            return

        def decide(current: Stored | None) -> Object | Removed:
            crd = self._present(Target(crds, None, kind.key), current).obj
            kept = [one for one in crd["metadata"].get("finalizers") or [] if one != CLEANUP_FINALIZER]
            return _or_removed(crd | {"metadata": crd["metadata"] | {"finalizers": kept}})

        await self._write(call, kind.key, decide, target=Target(crds, None, kind.key), dry_run=False)

    async def _rescale(self, call: Call, change: Callable[[Object], Object]) -> Answer:
        kind, paths = call.target.kind, call.target.kind.scale
        if paths is None:
            raise errors.method_not_allowed()

        def apply_scale(old: Object) -> Draft:
            current = in_version(kind, old)
            return admitted(kind, with_scale(paths, current, change(scale_of(paths, current))))

        stored = await self._write(call, call.target.name, self._updating(call, apply_scale, patch=True))
        return Answer(200, encode(scale_of(paths, stored.obj)))

    def _updating(self, call: Call, change: Callable[[Object], Draft], *, patch: bool = False) -> Decide:
        kind = call.target.kind

        def decide(current: Stored | None) -> Object | Removed:
            old = self._present(call.target, current).obj
            draft = change(old)
            if call.target.subresource == "finalize":
                finalizers = (draft.obj.get("spec") or {}).get("finalizers") or []
                return _or_removed(old | {"spec": (old.get("spec") or {}) | {"finalizers": finalizers}})
            updated = updated_object(kind, draft, old, call.author, patch=patch)
            if kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
                call.warnings.extend(unenforced_rule_warnings(updated))
            return _or_removed(updated)

        return decide

    async def _write(
        self, call: Call, name: str, decide: Decide, *, target: Target | None = None, dry_run: bool | None = None
    ) -> Stored:
        """Stores what `decide` says; a dry run goes all the way but the last step."""
        target = target or call.target
        kind = target.kind
        if call.dry_run if dry_run is None else dry_run:
            current = self._store.get(kind.key, target.scope, name)
            decided = decide(current)
            obj = decided.last if isinstance(decided, Removed) else decided
            return Stored((target.scope, name), current.version if current else 0, encode(obj), obj)
        change = await self._store.change(kind.key, target.scope, name, decide)
        if change is None:
            return self._stored(Target(kind, target.namespace, name))
        if change.removed and kind.custom:
            await self._release_definition(kind, call)
        return change.new

    def _new(self, call: Call, draft: Draft, author: Author | None = None) -> Object:
        uid = str(uuid.UUID(int=secrets.randbits(128), version=4))
        kind = call.target.kind
        obj = new_object(kind, draft, namespace=call.target.scope, uid=uid, author=author or call.author)
        if kind.resource == CUSTOM_RESOURCE_DEFINITIONS:
            call.warnings.extend(unenforced_rule_warnings(obj))
        return obj

    def _answer(self, call: Call, code: int, stored: Stored) -> Answer:
        kind = call.target.kind
        if kind.warning:
            call.warnings.append(kind.warning)
        return Answer(code, object_body(kind, stored, call.form, call.now))

    def _stored(self, target: Target) -> Stored:
        return self._present(target, self._store.get(target.kind.key, target.scope, target.name))

    def _present(self, target: Target, stored: Stored | None) -> Stored:
        if stored is None:
            raise errors.not_found(target.kind.resource, target.name)
        return stored

    def _body(self, call: Call) -> Body:
        return decode_body(call.body, call.content_type, kind=call.target.kind.resource.kind)

    def _plain_body(self, call: Call, kind: str) -> Object:
        body = decode_body(call.body, call.content_type, kind=kind).value
        if not isinstance(body, dict):
            raise errors.bad_request(f"the body must be a {kind} object")
        return body

    def _admit(self, call: Call, body: Body, *, patched: bool = False) -> Draft:
        """The body as a draft; unknown and repeated fields are refused or warned of, as the client wants it."""
        kind, validation = call.target.kind, call.field_validation
        sent = encode(body.value).decode() if patched and validation == "Strict" else ""
        draft = admitted(kind, body.value)
        if validation == "Ignore":
            return draft
        found = strict_decoding_errors(body, draft.found.unknown)
        if found and validation == "Strict":
            why = "strict decoding error: " + ", ".join(found)
            raise errors.invalid_patch(sent, why) if patched else errors.undecodable(kind.resource, why)
        call.warnings.extend(found)
        return draft

    def _check_name(self, call: Call, obj: Object) -> None:
        metadata = obj.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if name is not None and name != call.target.name:
            message = f"the name of the object ({name}) does not match the name on the URL ({call.target.name})"
            raise errors.bad_request(message)

    def _check_namespace(self, call: Call, obj: object) -> None:
        metadata = obj.get("metadata") if isinstance(obj, dict) else None
        namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
        if namespace and namespace != call.target.scope:
            message = "the namespace of the provided object does not match the namespace sent on the request"
            raise errors.bad_request(message)

    def _check_lifecycle(self, target: Target, name: str) -> None:
        """Nothing is created in a namespace that is not there or on its way out, nor of a CRD that is."""
        if target.kind.resource.namespaced:
            namespace = self._store.get(NAMESPACES.qualified_plural, "", target.scope)
            if namespace is None:
                raise errors.not_found(NAMESPACES, target.scope)
            if "deletionTimestamp" in namespace.obj["metadata"]:
                cause = {
                    "reason": "NamespaceTerminating",
                    "message": f"namespace {target.scope} is being terminated",
                    "field": "metadata.namespace",
                }
                why = f"unable to create new content in namespace {target.scope} because it is being terminated"
                raise errors.forbidden(target.kind.resource, name, why, [cause])
        if target.kind.custom:
            crd = self._store.get(CUSTOM_RESOURCE_DEFINITIONS.qualified_plural, "", target.kind.key)
            if crd is not None and "deletionTimestamp" in crd.obj["metadata"]:
                message = "create not allowed while custom resource definition is terminating"
                raise errors.ApiFailure(405, "MethodNotAllowed", message)


def bound_pod(pod: Object, node: str, moment: str, metadata: Object) -> Object:
    """The pod assigned to a node; the binding's annotations and labels go over to it."""
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": moment}
    status = pod.get("status") or {}
    others = [one for one in status.get("conditions") or [] if one.get("type") != "PodScheduled"]
    merged = dict(pod["metadata"])
    for field in ("annotations", "labels"):
        if metadata.get(field):
            merged[field] = (merged.get(field) or {}) | metadata[field]
    return pod | {
        "metadata": merged,
        "spec": pod["spec"] | {"nodeName": node},
        "status": status | {"conditions": [*others, scheduled]},
    }


def _or_removed(obj: Object) -> Object | Removed:
    """An update that lets go of a deleted object removes it."""
    return Removed(obj) if is_ready_to_go(obj) else obj


def _objects_key(crd: Object) -> str:
    return str(crd["metadata"]["name"])
