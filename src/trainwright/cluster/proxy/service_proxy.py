"""The service proxy: listens on the addresses of Services and forwards to their ready endpoints.

A port is listened on while the Service has ready endpoints: without them a connection is refused, as on a real cluster.
Pods share the network of this machine, so a listener of this process would keep pods from listening on all addresses at
the same port. If port and targetPort are equal, the proxy therefore lets the pod listen first. If the pod then listens
on all addresses, it answers at the Service's address itself, and nothing has to be forwarded.
"""

import asyncio
import errno
import logging

from trainwright.cluster.proxy.forwarder import ConnectionLimit, Forwarder
from trainwright.cluster.proxy.service_ports import Note, ServicePort, notes, service_ports, unreachable
from trainwright.cluster.proxy.sockets import ANY, listening_addresses
from trainwright.kube.client.async_client import Client
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.deduplicator import Deduplicator
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.outcome import Done, Outcome, RequeueAfter
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store, raw_metadata
from trainwright.objects import Object
from trainwright.objects.kinds.services import HEADLESS
from trainwright.objects.metadata import namespaced_name
from trainwright.objects.resources import ENDPOINT_SLICES, SERVICES

log = logging.getLogger(__name__)

SERVICE_NAME = "kubernetes.io/service-name"

_FIRST_WAIT, _LONGEST_WAIT = 0.05, 10.0
"""Seconds between looking whether a pod listens."""
_TAKEN_SECONDS = 5.0
"""Until a port that another process has is tried again."""

Listener = tuple[str, int]


class ServiceProxy:
    def __init__(self, client: Client, recorder: EventRecorder, limit: ConnectionLimit) -> None:
        self._recorder = recorder
        self._limit = limit
        self._services = Store[Object](metadata=raw_metadata)
        self._slices = Store[Object](metadata=raw_metadata, indexes={"service": _service_of})
        self._forwarders: dict[str, dict[Listener, Forwarder]] = {}
        self._closing: list[Forwarder] = []
        """They no longer listen, but may have connections."""
        self._waits: dict[str, float] = {}
        self._reported = Deduplicator[str, Note]()
        self._controller: Controller[str] = Controller(
            self._reconcile,
            log=log,
            reflectors=[
                Reflector(client, SERVICES, self._services, convert=_unchanged, on_change=self._service_changed),
                Reflector(client, ENDPOINT_SLICES, self._slices, convert=_unchanged, on_change=self._slice_changed),
            ],
            retry_log_level=logging.DEBUG,
        )

    async def run(self) -> None:
        try:
            await self._controller.run()
        finally:
            for forwarder in self._closing:
                forwarder.close(listening=False)
            for forwarders in self._forwarders.values():
                for forwarder in forwarders.values():
                    forwarder.close()

    def _service_changed(self, before: Object | None, after: Object | None) -> None:
        # Most Services are those of ranks; nothing is to be done for them.
        if any(one is not None and not _is_plain_headless(one) for one in (before, after)):
            self._controller.queue.add(namespaced_name(after or before or {}))

    def _slice_changed(self, before: Object | None, after: Object | None) -> None:
        for key in {*(_service_of(before) if before else ()), *(_service_of(after) if after else ())}:
            service = self._services.get(key)
            if service is not None and not _is_plain_headless(service):
                self._waits.pop(key, None)
                self._controller.queue.add(key)

    async def _reconcile(self, key: str) -> Outcome:
        service = self._services.get(key)
        ports = service_ports(service, self._slices.by_index("service", key)) if service is not None else []
        wanted = {port.listener: port for port in ports if port.endpoints}
        open_now = self._forwarders.setdefault(key, {})
        for listener in open_now.keys() - wanted.keys():
            self._retire(open_now.pop(listener))
        found = notes(service) if service is not None else []
        delays = []
        for listener, port in wanted.items():
            if listener not in open_now:
                listening = await asyncio.to_thread(listening_addresses, port.port) if port.may_be_taken_by_pod else ()
                if port.may_be_taken_by_pod and not _may_listen(port, listening):
                    if ANY not in listening:
                        delays.append(self._next_wait(key))
                    continue
                try:
                    open_now[listener] = Forwarder(*listener, self._limit)
                except OSError as error:
                    found.append(_failure(service or {}, port, error))
                    delays.append(_TAKEN_SECONDS)
                    continue
            open_now[listener].update(port.endpoints, port.affinity_seconds)
        if not open_now:
            del self._forwarders[key]
        self._report(key, service, found)
        if service is None:
            self._waits.pop(key, None)
        return RequeueAfter(min(delays)) if delays else Done()

    def _next_wait(self, key: str) -> float:
        wait = self._waits.get(key, _FIRST_WAIT)
        self._waits[key] = min(wait * 1.5, _LONGEST_WAIT)
        return wait

    def _retire(self, forwarder: Forwarder) -> None:
        forwarder.stop_listening()
        self._closing = [one for one in self._closing if one.has_connections]
        if forwarder.has_connections:
            self._closing.append(forwarder)

    def _report(self, key: str, service: Object | None, found: list[Note]) -> None:
        if service is None:
            self._reported.forget(key)
            return
        for note in self._reported.update(key, found):
            self._recorder.record(service, note.type, note.reason, note.message)


def _may_listen(port: ServicePort, listening: set[str] | tuple[()]) -> bool:
    """Whether a pod listens on its own address at the port of the Service, so that others can listen there too."""
    own = {endpoint.address for endpoint in port.endpoints if endpoint.port == port.port}
    return ANY not in listening and not own.isdisjoint(listening)


def _failure(service: Object, port: ServicePort, error: OSError) -> Note:
    if error.errno == errno.EADDRINUSE:
        return unreachable(service, port, "another process listens on this port", permission=False)
    denied = error.errno in {errno.EACCES, errno.EPERM}
    return unreachable(service, port, error.strerror or str(error), permission=denied)


def _is_plain_headless(service: Object) -> bool:
    spec = service["spec"]
    return spec.get("clusterIP") == HEADLESS and not spec.get("externalIPs")


def _service_of(endpoint_slice: Object) -> list[str]:
    metadata = endpoint_slice["metadata"]
    name = (metadata.get("labels") or {}).get(SERVICE_NAME)
    return [f"{metadata['namespace']}/{name}"] if name else []


def _unchanged(obj: Object) -> Object:
    return obj
