"""The host ports of pods: listens on them at this machine's loopback address and forwards to the pods."""

import logging

from trainwright.cluster.proxy.forwarded_ports import Note, nodes_with_own_ports
from trainwright.cluster.proxy.forwarder import ConnectionLimit
from trainwright.cluster.proxy.host_ports import HostPortPod, host_ports, notes, unreachable
from trainwright.cluster.proxy.port_forwards import PortForwards
from trainwright.kube.client.async_client import Client
from trainwright.kube.controller.controller import Controller
from trainwright.kube.controller.deduplicator import Deduplicator
from trainwright.kube.controller.event_recorder import EventRecorder
from trainwright.kube.controller.outcome import Outcome
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.objects.kinds.nodes import Node
from trainwright.objects.resources import NODES, PODS

log = logging.getLogger(__name__)


class HostPortProxy:
    def __init__(self, client: Client, recorder: EventRecorder, limit: ConnectionLimit) -> None:
        self._recorder = recorder
        self._pods = Store[HostPortPod](metadata=lambda pod: pod.metadata)
        self._nodes = Store[Node](metadata=lambda node: node.metadata)
        self._forwards = PortForwards(limit)
        self._reported = Deduplicator[str, Note]()
        self._controller: Controller[str] = Controller(
            self._reconcile,
            log=log,
            reflectors=[
                Reflector(client, NODES, self._nodes, convert=Node),
                Reflector(client, PODS, self._pods, convert=HostPortPod, on_change=self._pod_changed),
            ],
            retry_log_level=logging.DEBUG,
        )

    async def run(self) -> None:
        try:
            await self._controller.run()
        finally:
            self._forwards.close()

    def _pod_changed(self, before: HostPortPod | None, after: HostPortPod | None) -> None:
        for pod in (before, after):
            if pod is not None and pod.host_ports:
                self._forwards.reset_wait(pod.metadata.namespaced_name)
                self._controller.queue.add(pod.metadata.namespaced_name)

    async def _reconcile(self, key: str) -> Outcome:
        pod = self._pods.get(key)
        if pod is None:
            self._reported.forget(key)
            return (await self._forwards.update(key, ())).outcome
        own_ports = nodes_with_own_ports(self._nodes.all())
        update = await self._forwards.update(key, host_ports(pod, own_ports))
        failures = [unreachable(pod, failure.port, failure.error, failure.holder) for failure in update.failures]
        for note in self._reported.update(key, [*notes(pod), *failures]):
            self._recorder.record(pod.metadata.reference(PODS.kind), note.type, note.reason, note.message)
        return update.outcome
