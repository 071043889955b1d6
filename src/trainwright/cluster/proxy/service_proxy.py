"""The service proxy: listens on the addresses of Services and forwards to their ready endpoints.

A port is listened on while the Service has ready endpoints: without them a connection is refused, as on a real cluster.
"""

import logging

from trainwright.cluster.proxy.forwarded_ports import Note, nodes_with_own_ports
from trainwright.cluster.proxy.forwarder import ConnectionLimit
from trainwright.cluster.proxy.port_forwards import PortForwards
from trainwright.cluster.proxy.service_ports import notes, service_ports, unreachable
from trainwright.kube.client.async_client import Client
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.deduplicator import Deduplicator
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.outcome import Outcome
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store, raw_metadata
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import Node
from trainwright.objects.kinds.services import HEADLESS
from trainwright.objects.metadata import namespaced_name
from trainwright.objects.resources import ENDPOINT_SLICES, NODES, SERVICES

log = logging.getLogger(__name__)

SERVICE_NAME = "kubernetes.io/service-name"


class ServiceProxy:
    def __init__(self, client: Client, recorder: EventRecorder, limit: ConnectionLimit) -> None:
        self._recorder = recorder
        self._services = Store[Object](metadata=raw_metadata)
        self._slices = Store[Object](metadata=raw_metadata, indexes={"service": _service_of})
        self._nodes = Store[Node](metadata=lambda node: node.metadata)
        self._forwards = PortForwards(limit)
        self._reported = Deduplicator[str, Note]()
        self._controller: Controller[str] = Controller(
            self._reconcile,
            log=log,
            reflectors=[
                Reflector(client, NODES, self._nodes, convert=Node),
                Reflector(client, SERVICES, self._services, convert=_unchanged, on_change=self._service_changed),
                Reflector(client, ENDPOINT_SLICES, self._slices, convert=_unchanged, on_change=self._slice_changed),
            ],
            retry_log_level=logging.DEBUG,
        )

    async def run(self) -> None:
        try:
            await self._controller.run()
        finally:
            self._forwards.close()

    def _service_changed(self, before: Object | None, after: Object | None) -> None:
        # Most Services are those of ranks; nothing is to be done for them.
        if any(one is not None and not _is_plain_headless(one) for one in (before, after)):
            self._controller.queue.add(namespaced_name(after or before or {}))

    def _slice_changed(self, before: Object | None, after: Object | None) -> None:
        for key in {*(_service_of(before) if before else ()), *(_service_of(after) if after else ())}:
            service = self._services.get(key)
            if service is not None and not _is_plain_headless(service):
                self._forwards.reset_wait(key)
                self._controller.queue.add(key)

    async def _reconcile(self, key: str) -> Outcome:
        service = self._services.get(key)
        if service is None:
            self._reported.forget(key)
            return (await self._forwards.update(key, ())).outcome
        own_ports = nodes_with_own_ports(self._nodes.all())
        ports = service_ports(service, self._slices.by_index("service", key), own_ports)
        update = await self._forwards.update(key, (port for port in ports if port.endpoints))
        failures = [unreachable(service, failure.port, failure.error, failure.holder) for failure in update.failures]
        for note in self._reported.update(key, [*notes(service), *failures]):
            self._recorder.record(service, note.type, note.reason, note.message)
        return update.outcome


def _is_plain_headless(service: Object) -> bool:
    spec = service["spec"]
    return spec.get("clusterIP") == HEADLESS and not spec.get("externalIPs")


def _service_of(endpoint_slice: Object) -> list[str]:
    metadata = endpoint_slice["metadata"]
    name = (metadata.get("labels") or {}).get(SERVICE_NAME)
    return [f"{metadata['namespace']}/{name}"] if name else []


def _unchanged(obj: Object) -> Object:
    return obj
