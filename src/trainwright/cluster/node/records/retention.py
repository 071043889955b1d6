"""Keeps the directories of deleted pods until the object that controlled the pods, such as a job, is deleted.

It watches the kinds of these owners and knows none of them. The directories themselves are its state: it continues
after any interruption.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from trainwright.cluster.node.pods.pod_directory import Owner, PodDirectory, removed_pod_directories
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.discovery import find_resource
from trainwright.kube.client.errors import NotFound
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.outcome import Done, Outcome, RequeueAfter, Retry
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.kube.controller.workqueue import WorkQueue
from trainwright.objects.metadata import AnyObject
from trainwright.objects.resources import Resource

log = logging.getLogger(__name__)

MAX_REMOVED_PODS = 20
"""Deleted pods of one name and owner that are kept; a job that replaces its pods for ever does not fill the disk."""

KEPT_PRIVATE_FILES = 3
"""So many of them keep their private files, which may be checkpoints of gigabytes."""

_LAGGING_SECONDS = 1.0
_LONGEST_RETRY = 60.0
_UID = "uid"


@dataclass
class _RemovedPods:
    """The deleted pods of one owner by name, the oldest first."""

    owner: Owner
    by_name: dict[str, list[PodDirectory]] = field(default_factory=dict)


@dataclass(frozen=True)
class _OwnerKind:
    """The watch of one kind of owners."""

    resource: Resource
    reflector: Reflector[AnyObject]
    store: Store[AnyObject]
    task: "asyncio.Task[NoReturn]"


class Retention:
    """`node` is the node's directory."""

    def __init__(self, client: Client, node: Path) -> None:
        self._client = client
        self._node = node
        self._queue = WorkQueue[str](longest_delay=_LONGEST_RETRY)
        self._pods: dict[str, _RemovedPods] = {}
        """By uid of the owner."""
        self._kinds: dict[tuple[str, str], _OwnerKind] = {}
        """By apiVersion and kind."""

    def add(self, directory: PodDirectory) -> None:
        """Takes over the directory of a deleted pod."""
        owner, config = directory.owner, directory.runtime_config
        if owner is not None and config is not None:
            pods = self._pods.setdefault(owner.uid, _RemovedPods(owner))
            pods.by_name.setdefault(config["name"], []).append(directory)
            self._queue.add(owner.uid)

    async def run(self) -> None:
        """Runs until it is cancelled."""
        directories = removed_pod_directories(self._node).values()
        for directory in sorted(directories, key=_created_at):
            if directory.owner is None:  # its removal was interrupted
                await asyncio.to_thread(directory.remove)
            self.add(directory)
        async with asyncio.TaskGroup() as tasks:

            async def reconcile(owner_uid: str) -> Outcome:
                return await self._reconcile(owner_uid, tasks)

            await Controller(reconcile, log=log, queue=self._queue, workers=2).run()

    async def _reconcile(self, owner_uid: str, tasks: asyncio.TaskGroup) -> Outcome:
        pods = self._pods.get(owner_uid)
        if pods is None:
            return Done()
        kind = await self._kind_of(pods.owner, tasks)
        if kind is None:
            # Its CRD may follow. An owner that cannot be read is never taken as deleted.
            return Retry(f"{pods.owner.api_version} {pods.owner.kind} is not served")
        if error := kind.reflector.sync_error:
            return Retry(error)
        if kind.store.by_index(_UID, owner_uid):
            for same_name in tuple(pods.by_name.values()):  # `add` may be called meanwhile
                await asyncio.to_thread(_remove_surplus, same_name)
            return Done()  # the deletion of the owner enqueues it again
        if await self._exists(kind.resource, pods.owner):
            return RequeueAfter(_LAGGING_SECONDS)
        del self._pods[owner_uid]
        for same_name in pods.by_name.values():
            for directory in same_name:
                await asyncio.to_thread(directory.remove)
        self._end_unused_watches()
        return Done()

    async def _kind_of(self, owner: Owner, tasks: asyncio.TaskGroup) -> _OwnerKind | None:
        key = (owner.api_version, owner.kind)
        if key not in self._kinds:
            resource = await find_resource(self._client, *key)
            if resource is None:
                return None
            if key not in self._kinds:  # another worker may have been faster
                self._kinds[key] = self._watch(resource, tasks)
        return self._kinds[key]

    def _watch(self, resource: Resource, tasks: asyncio.TaskGroup) -> _OwnerKind:
        store: Store[AnyObject] = Store(indexes={_UID: lambda entry: [entry.metadata.uid]})

        def on_change(before: AnyObject | None, after: AnyObject | None) -> None:
            if before is not None and (after is None or after.metadata.uid != before.metadata.uid):
                self._queue.add(before.metadata.uid)

        reflector = Reflector(self._client, resource, store, convert=AnyObject, on_change=on_change)
        return _OwnerKind(resource, reflector, store, tasks.create_task(reflector.run()))

    def _end_unused_watches(self) -> None:
        used = {(pods.owner.api_version, pods.owner.kind) for pods in self._pods.values()}
        for key in self._kinds.keys() - used:
            self._kinds.pop(key).task.cancel()

    async def _exists(self, resource: Resource, owner: Owner) -> bool:
        try:
            found = await self._client.get(resource, owner.name, namespace=owner.namespace)
        except NotFound:
            return False
        return bool(found["metadata"]["uid"] == owner.uid)


def _remove_surplus(same_name: list[PodDirectory]) -> None:
    while len(same_name) > MAX_REMOVED_PODS:
        same_name.pop(0).remove()
    for directory in same_name[:-KEPT_PRIVATE_FILES]:
        directory.remove_private_files()


def _created_at(directory: PodDirectory) -> str:
    config = directory.runtime_config
    return config.get("createdAt", "") if config is not None else ""
