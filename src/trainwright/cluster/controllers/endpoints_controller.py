"""The endpoints controller: writes the Endpoints and EndpointSlices of Services.

On a real cluster these are three controllers: endpoint, endpointslice and endpointslicemirroring.
"""

import asyncio
import logging
from contextlib import suppress

from trainwright.cluster.controllers.endpoints import (
    ENDPOINTS_MANAGED_BY,
    MANAGED_BY,
    MIRROR_CONTROLLER,
    SLICE_CONTROLLER,
    EndpointPod,
    SlicePlan,
    make_endpoints,
    plan_mirrored_slices,
    plan_slices,
)
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, Conflict, Forbidden, NotFound
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.services import service_of_slice
from trainwright.objects.label_index import LabelIndex, SelectorIndex
from trainwright.objects.metadata import namespaced_name
from trainwright.objects.resources import ENDPOINT_SLICES, ENDPOINTS, PODS, SERVICES

log = logging.getLogger(__name__)

_BATCH_SECONDS = 0.02
"""Changes within this time are written together."""
_HEADLESS_BATCH_SECONDS = 0.5
"""Pods find each other through hosts files, not through the endpoints of headless Services, and every rank of a job
has such a Service: a short job should not cost a dozen writes more."""


class EndpointsController:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._services = Store[Object]()
        self._pods = Store[EndpointPod]()
        self._endpoints = Store[Object]()
        self._slices = Store[Object](indexes={"service": service_of_slice})
        self._labels = LabelIndex()
        self._selectors = SelectorIndex()
        self.controller: Controller[str] = Controller(
            self._reconcile,
            log=log,
            reflectors=[
                Reflector(client, SERVICES, self._services, on_change=self._service_changed),
                Reflector(client, PODS, self._pods, convert=EndpointPod, on_change=self._pod_changed),
                Reflector(client, ENDPOINTS, self._endpoints, on_change=self._endpoints_changed),
                Reflector(client, ENDPOINT_SLICES, self._slices, on_change=self._slice_changed),
            ],
        )

    def _service_changed(self, before: Object | None, after: Object | None) -> None:
        if after is None:
            if before is not None:
                self._selectors.discard(namespaced_name(before))
            return
        if before is not None and _relevant(before) == _relevant(after):
            return
        key = namespaced_name(after)
        self._selectors.put(key, after["metadata"]["namespace"], after["spec"].get("selector") or {})
        self._enqueue(key)

    def _pod_changed(self, before: EndpointPod | None, after: EndpointPod | None) -> None:
        if before is not None and after is not None and before.relevant == after.relevant:
            return
        for pod in (before, after):
            if pod is not None and (pod is after or pod.status.is_reachable):
                for key in self._selectors.selecting(pod.metadata.namespace, pod.metadata.labels):
                    self._enqueue(key)
        if after is not None:
            self._labels.put(after.metadata.namespaced_name, after.metadata.namespace, after.metadata.labels)
        elif before is not None:
            self._labels.discard(before.metadata.namespaced_name)

    def _endpoints_changed(self, before: Object | None, after: Object | None) -> None:
        key = namespaced_name(after or before or {})
        if self._services.get(key) is None and after is not None:
            self.controller.queue.add_after(key, _HEADLESS_BATCH_SECONDS)
        else:
            self._enqueue(key)

    def _slice_changed(self, before: Object | None, after: Object | None) -> None:
        for endpoint_slice in (before, after):
            for key in service_of_slice(endpoint_slice) if endpoint_slice is not None else ():
                self._enqueue(key)

    def _enqueue(self, key: str) -> None:
        service = self._services.get(key)
        if service is not None:
            headless = service["spec"].get("clusterIP") == "None"
            self.controller.queue.add_after(key, _HEADLESS_BATCH_SECONDS if headless else _BATCH_SECONDS)

    async def _reconcile(self, key: str) -> None:
        service = self._services.get(key)
        if service is None:
            await self._delete_orphan(key)
            return
        if service["spec"].get("type") == "ExternalName":
            return
        existing = self._slices.by_index("service", key)
        owned = {
            name: [endpoint_slice for endpoint_slice in existing if _manager(endpoint_slice) == name]
            for name in _CONTROLLERS
        }
        selector = service["spec"].get("selector")
        if selector:
            pods = self._selected(service["metadata"]["namespace"], selector)
            plan = plan_slices(service, pods, owned[SLICE_CONTROLLER])
            plan.delete += owned[MIRROR_CONTROLLER]
            await asyncio.gather(self._write_endpoints(key, make_endpoints(service, pods)), self._write_slices(plan))
        else:
            plan = plan_mirrored_slices(self._endpoints.get(key), owned[MIRROR_CONTROLLER])
            plan.delete += owned[SLICE_CONTROLLER]
            await self._write_slices(plan)

    async def _delete_orphan(self, key: str) -> None:
        """The API server deletes Endpoints with their Service, and the garbage collector the slices. What remains was
        written by this controller while the Service was deleted."""
        endpoints = self._endpoints.get(key)
        if endpoints is None or ENDPOINTS_MANAGED_BY not in (endpoints["metadata"].get("labels") or {}):
            return
        metadata = endpoints["metadata"]
        with suppress(NotFound, Conflict):
            await self._client.delete(ENDPOINTS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])

    def _selected(self, namespace: str, selector: dict[str, str]) -> list[EndpointPod]:
        found = (self._pods.get(key) for key in self._labels.selected(namespace, selector))
        return [pod for pod in found if pod is not None]

    async def _write_endpoints(self, key: str, wanted: Object) -> None:
        present = self._endpoints.get(key)
        if present is None:
            try:
                self._endpoints.remember(await self._client.create(ENDPOINTS, wanted))
            except (AlreadyExists, Forbidden, NotFound) as error:
                _raise_unless_terminating(error)
            return
        metadata = present["metadata"]
        same_labels = (metadata.get("labels") or {}) == wanted["metadata"]["labels"]
        if same_labels and (present.get("subsets") or []) == (wanted.get("subsets") or []):
            return
        kept = {field: metadata[field] for field in ("uid", "resourceVersion")}
        self._endpoints.remember(
            await self._client.replace(ENDPOINTS, wanted | {"metadata": wanted["metadata"] | kept})
        )

    async def _write_slices(self, plan: SlicePlan) -> None:
        for endpoint_slice in plan.create:
            try:
                self._slices.remember(await self._client.create(ENDPOINT_SLICES, endpoint_slice))
            except (Forbidden, NotFound) as error:
                _raise_unless_terminating(error)
        for endpoint_slice in plan.update:
            self._slices.remember(await self._client.replace(ENDPOINT_SLICES, endpoint_slice))
        for endpoint_slice in plan.delete:
            metadata = endpoint_slice["metadata"]
            try:
                await self._client.delete(
                    ENDPOINT_SLICES, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"]
                )
            except (NotFound, Conflict):
                continue
            self._slices.forget(namespaced_name(endpoint_slice), uid=metadata["uid"])


_CONTROLLERS = (SLICE_CONTROLLER, MIRROR_CONTROLLER)


def _raise_unless_terminating(error: Exception) -> None:
    """Nothing can be created in a namespace that is being deleted, or is gone; a conflict is resolved by a retry."""
    if isinstance(error, AlreadyExists):
        raise error


def _relevant(service: Object) -> object:
    return service["spec"], service["metadata"].get("labels"), service["metadata"]["uid"]


def _manager(endpoint_slice: Object) -> str:
    return str((endpoint_slice["metadata"].get("labels") or {}).get(MANAGED_BY, ""))
