"""The sockets of a pod as its supervisor sees them: ports of the pod's own, where it listens, and which are taken.

Standard library only.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainwright.cluster.linux.listening_sockets import Listener
    from trainwright.cluster.node.supervisor.network.listening_ports import ListeningPorts
    from trainwright.cluster.node.supervisor.network.socket_broker import SocketBroker
    from trainwright.cluster.node.supervisor.pod_json import ContainerJson, PodJson
    from trainwright.cluster.node.supervisor.poller import Poller

_MAX_REPORTED = 20


class PodSockets:
    """`on_port_in_use` gets the ports that programs of the machine have, each once.

    A pod with `hostNetwork`, one of an earlier version, or one on a machine whose kernel cannot do it has the ports of
    the machine: its calls are not seen.
    """

    def __init__(
        self,
        pod: PodJson,
        *,
        poller: Poller,
        on_port_in_use: Callable[[int], None],
    ) -> None:
        self._pod = pod
        self._poller = poller
        self._on_port_in_use = on_port_in_use
        self._reported: set[int] = set()
        self._broker: SocketBroker | None = None
        self._listening: ListeningPorts | None = None

    def open(self, proc: str | None) -> None:
        """`proc` is the pod's /proc."""
        if not self._pod.get("ownPorts"):
            return
        from trainwright.cluster.node.supervisor.network.listening_ports import ListeningPorts
        from trainwright.cluster.node.supervisor.network.pod_addresses import PodAddresses
        from trainwright.cluster.node.supervisor.network.socket_broker import SocketBroker

        self._listening = listening = ListeningPorts(self._find_listening)
        self._broker = SocketBroker(
            PodAddresses(self._pod["address"], self._pod["secondAddress"]),
            proc=proc,
            poller=self._poller,
            on_bound=lambda port: listening.bound(port, time.monotonic()),
            on_taken=self._report_if_taken,
        )

    @property
    def on_listener(self) -> Callable[[int], None] | None:
        """To be called in a child with the listener of its filter; None if the pod has the ports of the machine."""
        return self._broker.send_listener if self._broker is not None else None

    @property
    def listening(self) -> list[int]:
        """The TCP ports on which programs of the pod listen at its address."""
        return self._listening.ports if self._listening is not None else []

    @property
    def next_at(self) -> float | None:
        return self._listening.next_at if self._listening is not None else None

    def tick(self, now: float) -> bool:
        """True if `listening` has changed."""
        return self._listening is not None and self._listening.tick(now)

    def container_starts(self, spec: ContainerJson) -> None:
        """Warns of declared ports that are taken, if they are those of the machine."""
        if self._broker is None:
            for port in spec.get("ports") or ():
                self._report_if_taken(port)

    def container_ended(self) -> None:
        if self._listening is not None:
            self._listening.container_ended()

    def _find_listening(self, ports: Iterable[int]) -> set[int]:
        address = self._pod["address"]
        return {listener.port for listener in _listeners() if listener.address == address} & set(ports)

    def _report_if_taken(self, port: int) -> None:
        """If a program of the machine listens on all addresses, or on those of a pod without its own. A port that the
        pod itself has is the program's own affair."""
        from trainwright.cluster.linux.listening_sockets import ANY

        if port in self._reported or len(self._reported) >= _MAX_REPORTED:
            return
        shared = ANY if self._broker is not None else {*ANY, "127.0.0.1", "::1", self._pod["address"]}
        if any(listener.port == port and listener.address in shared for listener in _listeners()):
            self._reported.add(port)
            self._on_port_in_use(port)


def _listeners() -> list[Listener]:
    from trainwright.cluster.linux.listening_sockets import read_listeners  # few pods need it

    return read_listeners()
