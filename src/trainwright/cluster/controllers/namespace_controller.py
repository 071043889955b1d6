"""The namespace controller: deletes the content of terminating namespaces, then removes their finalizer."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from trainwright.kube.client.async_client import Client
from trainwright.kube.client.discovery import discover
from trainwright.kube.client.errors import Conflict, NotFound
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.outcome import Done, Outcome, Retry
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.kube.controller.workqueue import WorkQueue
from trainwright.objects import Object
from trainwright.objects.metadata import AnyObject
from trainwright.objects.resources import NAMESPACES, Resource
from trainwright.objects.times import format_time

log = logging.getLogger(__name__)

_FINALIZER = "kubernetes"
_LONGEST_PAUSE = 2.0


class NamespaceController:
    def __init__(self, client: Client, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._client = client
        self._now = now
        store = Store[AnyObject]()
        self.controller: Controller[str] = Controller(
            self._reconcile,
            log=log,
            reflectors=[Reflector(client, NAMESPACES, store, convert=AnyObject, on_change=self._changed)],
            queue=WorkQueue(longest_delay=_LONGEST_PAUSE),
        )

    def _changed(self, _before: AnyObject | None, after: AnyObject | None) -> None:
        if after is not None and after.metadata.terminating:
            self.controller.queue.add(after.metadata.name)

    async def _reconcile(self, name: str) -> Outcome:
        try:
            namespace = await self._client.get(NAMESPACES, name)
        except NotFound:
            return Done()
        finalizers = namespace.get("spec", {}).get("finalizers") or []
        if "deletionTimestamp" not in namespace["metadata"] or _FINALIZER not in finalizers:
            return Done()
        resources = [
            served.resource
            for served in await discover(self._client)
            if served.resource.namespaced and served.verbs >= {"list", "delete"}
        ]
        found = await asyncio.gather(*(self._delete_all(resource, name) for resource in resources))
        remaining = {resource: objects for resource, objects in zip(resources, found, strict=True) if objects}
        if remaining:
            await self._update_conditions(namespace, remaining)
            return Retry(f"{sum(map(len, remaining.values()))} objects still exist")
        kept = {**namespace, "spec": {"finalizers": [name for name in finalizers if name != _FINALIZER]}}
        with suppress(NotFound):
            await self._client.replace(NAMESPACES, kept, subresource="finalize")
        return Done()

    async def _delete_all(self, resource: Resource, namespace: str) -> list[Object]:
        """Deletes all objects of a resource and returns them; they may still be terminating."""
        found = (await self._client.list(resource, namespace=namespace)).items
        await asyncio.gather(*(self._delete(resource, obj) for obj in found))
        return found

    async def _delete(self, resource: Resource, obj: Object) -> None:
        metadata = obj["metadata"]
        if "deletionTimestamp" in metadata:
            return
        try:
            await self._client.delete(resource, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])
        except (NotFound, Conflict):
            return  # deleted or replaced meanwhile; the next reconciliation handles it

    async def _update_conditions(self, namespace: Object, remaining: Mapping[Resource, list[Object]]) -> None:
        status = namespace.get("status", {})
        terminating = {
            key: [obj for obj in many if "deletionTimestamp" in obj["metadata"]] for key, many in remaining.items()
        }
        conditions = remaining_conditions(
            {key: many for key, many in terminating.items() if many}, format_time(self._now())
        )
        present = {condition["type"]: condition for condition in status.get("conditions") or ()}
        changed = {
            condition["type"]: condition
            for condition in conditions
            if present.get(condition["type"], {}).get("message") != condition["message"]
        }
        if changed:
            patch: Object = {"status": {"conditions": [*({**present, **changed}).values()]}}
            await self._client.patch(NAMESPACES, namespace["metadata"]["name"], patch, subresource="status")


def remaining_conditions(remaining: Mapping[Resource, list[Object]], moment: str) -> list[dict[str, Any]]:
    """The conditions of upstream: how many objects of each resource remain, and their finalizers."""
    if not remaining:
        return []
    counts = ", ".join(
        f"{resource.plural}.{resource.group} has {len(objects)} resource instances"
        for resource, objects in sorted(remaining.items(), key=lambda item: item[0].qualified_plural)
    )
    finalizers = Counter(
        finalizer
        for objects in remaining.values()
        for obj in objects
        for finalizer in obj["metadata"].get("finalizers") or ()
    )
    conditions = [("NamespaceContentRemaining", "SomeResourcesRemain", f"Some resources are remaining: {counts}")]
    if finalizers:
        holders = ", ".join(f"{name} in {count} resource instances" for name, count in sorted(finalizers.items()))
        text = f"Some content in the namespace has finalizers remaining: {holders}"
        conditions.append(("NamespaceFinalizersRemaining", "SomeFinalizersRemain", text))
    return [
        {"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": moment}
        for type_, reason, message in conditions
    ]
