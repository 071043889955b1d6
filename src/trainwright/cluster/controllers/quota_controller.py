"""The quota controller: writes what the objects of a namespace use to the status of its ResourceQuotas.

Admission enforces quotas without it. Pods are watched while a quota exists; other kinds are counted every few seconds.
"""

import asyncio
import logging

from trainwright.kube.client.async_client import Client
from trainwright.kube.client.discovery import discover
from trainwright.kube.client.errors import NotFound
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import RequeueAfter
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.quota import total_usage
from trainwright.objects.metadata import AnyObject
from trainwright.objects.quantities import format_quantity
from trainwright.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS, RESOURCE_QUOTAS, SERVICES, Resource

log = logging.getLogger(__name__)

_RECOUNT_SECONDS = 5.0
_POD_PREFIXES = ("cpu", "memory", "ephemeral-storage", "hugepages-", "limits.", "requests.")


class QuotaController:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._quotas = Store[Object](indexes={"namespace": lambda quota: [quota["metadata"]["namespace"]]})
        self._needed = asyncio.Event()
        pods = Store[AnyObject]()
        self._pods = Reflector(client, PODS, pods, convert=AnyObject, on_change=self._pod_changed)
        self._controller: Controller[ObjectKey] = Controller(
            self._reconcile,
            log=log,
            reflectors=[Reflector(client, RESOURCE_QUOTAS, self._quotas, on_change=self._quota_changed)],
            workers=1,
        )

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_pods())
            group.create_task(self._controller.run())

    async def _watch_pods(self) -> None:
        await self._needed.wait()
        await self._pods.run()

    def _quota_changed(self, _before: Object | None, after: Object | None) -> None:
        if after is not None:
            self._needed.set()
            self._controller.queue.add(ObjectKey.of(after))

    def _pod_changed(self, before: AnyObject | None, after: AnyObject | None) -> None:
        pod = after or before
        for quota in self._quotas.by_index("namespace", pod.metadata.namespace if pod is not None else ""):
            self._controller.queue.add_coalesced(ObjectKey.of(quota))

    async def _reconcile(self, key: ObjectKey) -> RequeueAfter | None:
        quota = self._quotas.get(key.namespaced_name)
        if quota is None:
            return None
        hard = quota["spec"].get("hard") or {}
        resources = counted_resources(hard, [served.resource for served in await discover(self._client)])
        lists = await asyncio.gather(*(self._client.list(resource, namespace=key.namespace) for resource in resources))
        objects = ((resource, obj) for resource, listed in zip(resources, lists, strict=True) for obj in listed.items)
        used = {name: format_quantity(amount) for name, amount in total_usage(quota, objects).items()}
        status: Object = {"hard": hard, "used": used}
        if status != quota.get("status"):
            try:
                changed = await self._client.replace(RESOURCE_QUOTAS, quota | {"status": status}, subresource="status")
            except NotFound:
                return None
            self._quotas.remember(changed)
        return RequeueAfter(_RECOUNT_SECONDS) if set(resources) - {PODS} else None


def counted_resources(hard: Object, served: list[Resource]) -> list[Resource]:
    """The resources whose objects use what the quota limits."""
    found = []
    for resource in served:
        names = {f"count/{resource.qualified_plural}", *([] if resource.group else [resource.plural])}
        counts = bool(names & hard.keys())
        if resource == PODS:
            counts = counts or any(name.startswith(_POD_PREFIXES) and name != "requests.storage" for name in hard)
        elif resource == SERVICES:
            counts = counts or any(name.startswith("services.") for name in hard)
        elif resource == PERSISTENT_VOLUME_CLAIMS:
            counts = counts or any(name == "requests.storage" or "storageclass.storage" in name for name in hard)
        if counts:
            found.append(resource)
    return found
