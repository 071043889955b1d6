"""The proxy: listens on the addresses of Services and on the host ports of pods, and forwards to the pods.

A port of a Service is listened on while it has ready endpoints: without them a connection is refused, as on a real
cluster.
"""

import logging
from functools import partial

from trainwright.cluster.proxy.forwarded_ports import (
    HostPortPod,
    Note,
    host_port_notes,
    host_port_unreachable,
    host_ports,
    nodes_with_own_ports,
    service_notes,
    service_ports,
    service_unreachable,
)
from trainwright.cluster.proxy.forwarder import ConnectionLimit
from trainwright.cluster.proxy.port_forwards import PortForwards
from trainwright.kube.client.async_client import Client
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.deduplicator import Deduplicator
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import Outcome
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import Node
from trainwright.objects.kinds.services import HEADLESS, service_of_slice
from trainwright.objects.resources import ENDPOINT_SLICES, NODES, PODS, SERVICES

log = logging.getLogger(__name__)


class PortProxy:
    def __init__(self, client: Client, recorder: EventRecorder, limit: ConnectionLimit) -> None:
        self._recorder = recorder
        self._services = Store[Object]()
        self._slices = Store[Object](indexes={"service": service_of_slice})
        self._pods = Store[HostPortPod]()
        self._nodes = Store[Node]()
        self._forwards = PortForwards(limit)
        self._reported = Deduplicator[ObjectKey, Note]()
        self._controller: Controller[ObjectKey] = Controller(
            self._reconcile,
            log=log,
            reflectors=[
                Reflector(client, NODES, self._nodes, convert=Node),
                Reflector(client, SERVICES, self._services, on_change=self._service_changed),
                Reflector(client, ENDPOINT_SLICES, self._slices, on_change=self._slice_changed),
                Reflector(client, PODS, self._pods, convert=HostPortPod, on_change=self._pod_changed),
            ],
        )

    async def run(self) -> None:
        try:
            await self._controller.run()
        finally:
            self._forwards.close()

    def _service_changed(self, before: Object | None, after: Object | None) -> None:
        # Most Services are those of ranks; nothing is to be done for them.
        for service in (before, after):
            if service is not None and not _is_plain_headless(service):
                self._controller.queue.add(ObjectKey.of(service))

    def _slice_changed(self, before: Object | None, after: Object | None) -> None:
        for name in {*(service_of_slice(before) if before else ()), *(service_of_slice(after) if after else ())}:
            service = self._services.get(name)
            if service is not None and not _is_plain_headless(service):
                self._endpoints_changed(ObjectKey.of(service))

    def _pod_changed(self, before: HostPortPod | None, after: HostPortPod | None) -> None:
        for pod in (before, after):
            if pod is not None and pod.host_ports:
                self._endpoints_changed(ObjectKey(PODS.kind, pod.metadata.namespace, pod.metadata.name))

    def _endpoints_changed(self, key: ObjectKey) -> None:
        self._forwards.reset_wait(key)
        self._controller.queue.add(key)

    async def _reconcile(self, key: ObjectKey) -> Outcome:
        name, own_ports = key.namespaced_name, nodes_with_own_ports(self._nodes.all())
        if key.kind == PODS.kind and (pod := self._pods.get(name)) is not None:
            subject = pod.metadata.reference(PODS.kind)
            ports, notes = host_ports(pod, own_ports), [*host_port_notes(pod)]
            unreachable = partial(host_port_unreachable, pod)
        elif key.kind == SERVICES.kind and (service := self._services.get(name)) is not None:
            subject = service
            ports = service_ports(service, self._slices.by_index("service", name), own_ports)
            notes = service_notes(service)
            unreachable = partial(service_unreachable, service)
        else:
            self._reported.forget(key)
            return (await self._forwards.update(key, ())).outcome
        update = await self._forwards.update(key, (port for port in ports if port.endpoints))
        failures = [unreachable(failure.port, failure.error, failure.holder) for failure in update.failures]
        for note in self._reported.update(key, [*notes, *failures]):
            self._recorder.record(subject, note.type, note.reason, note.message)
        return update.outcome


def _is_plain_headless(service: Object) -> bool:
    spec = service["spec"]
    return spec.get("clusterIP") == HEADLESS and not spec.get("externalIPs")
