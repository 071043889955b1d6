"""Keeps the Service `kubernetes` with its endpoints, through which pods reach the API server.

A real API server does this itself. Its port is that of the API server, not 443: an ordinary user cannot listen there,
and as root a listener on 443 would keep other programs of this machine from theirs.
"""

import logging
from functools import partial

from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.services import SERVICE_NAME
from trainwright.objects.metadata import namespaced_name
from trainwright.objects.resources import ENDPOINT_SLICES, ENDPOINTS, SERVICES, Resource
from trainwright.objects.subset import covers

log = logging.getLogger(__name__)

_NAME, _NAMESPACE = "kubernetes", "default"


class KubernetesService:
    """`address` is that of the Service, `host` and `port` those of the API server."""

    def __init__(self, client: Client, *, address: str, host: str, port: int) -> None:
        self._client = client
        self._wanted = dict(kubernetes_objects(address=address, host=host, port=port))
        self._stores = {resource: Store[Object]() for resource in self._wanted}
        self.controller: Controller[Resource] = Controller(
            self._reconcile,
            log=log,
            reflectors=[
                Reflector(
                    client,
                    resource,
                    store,
                    namespace=_NAMESPACE,
                    field_selector=f"metadata.name={_NAME}",
                    on_change=partial(self._changed, resource),
                )
                for resource, store in self._stores.items()
            ],
            workers=1,
        )
        for resource in self._wanted:
            self.controller.queue.add(resource)

    def _changed(self, resource: Resource, _before: Object | None, _after: Object | None) -> None:
        self.controller.queue.add(resource)

    async def _reconcile(self, resource: Resource) -> None:
        wanted = self._wanted[resource]
        present = self._stores[resource].get(namespaced_name(wanted))
        if present is None:
            try:
                self._stores[resource].remember(await self._client.create(resource, wanted))
            except AlreadyExists:
                return  # the watch delivers it
        elif not covers(present, wanted):
            changed = present | wanted | {"metadata": present["metadata"] | wanted["metadata"]}
            if resource == SERVICES:
                changed["spec"] = present["spec"] | wanted["spec"]
            self._stores[resource].remember(await self._client.replace(resource, changed))


def kubernetes_objects(*, address: str, host: str, port: int) -> list[tuple[Resource, Object]]:
    service: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": _NAME,
            "namespace": _NAMESPACE,
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": address,
            "clusterIPs": [address],
            "ports": [{"name": "https", "port": port, "protocol": "TCP", "targetPort": port}],
        },
    }
    endpoints: Object = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {
            "name": _NAME,
            "namespace": _NAMESPACE,
            "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"},
        },
        "subsets": [{"addresses": [{"ip": host}], "ports": [{"name": "https", "port": port, "protocol": "TCP"}]}],
    }
    endpoint_slice: Object = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": _NAME, "namespace": _NAMESPACE, "labels": {SERVICE_NAME: _NAME}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
    }
    return [(SERVICES, service), (ENDPOINTS, endpoints), (ENDPOINT_SLICES, endpoint_slice)]
