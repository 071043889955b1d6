"""The sockets of a pod as its supervisor sees them: ports of the pod's own, where it listens, and which are taken.

Standard library only.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from trainwright.cluster.linux.listening_sockets import Listener
    from trainwright.cluster.node.supervisor.network.listening_ports import ListeningPorts
    from trainwright.cluster.node.supervisor.network.socket_broker import SocketBroker

_MAX_REPORTED = 20
_PORT_IN_USE = "PortInUse"
_FIX = "stop it, let it listen on an address of its own, or use another port"
_NAME, _MARK = b"HOSTNAME=", b"GLOO_SOCKET_IFNAME=lo"
"""Variables of every container."""


class PodSockets:
    """`watch` and `unwatch` are those of the supervisor's loop; `record` gets the type, reason and message of an event.

    A pod with `hostNetwork`, one of an earlier version, or one on a machine whose kernel cannot do it has the ports of
    the machine: its calls are not seen.
    """

    def __init__(
        self,
        pod: dict[str, Any],
        *,
        watch: Callable[[int, Callable[[], None]], None],
        unwatch: Callable[[int], None],
        record: Callable[[str, str, str], None],
    ) -> None:
        self._pod = pod
        self._watch = watch
        self._unwatch = unwatch
        self._record = record
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
            watch=self._watch,
            unwatch=self._unwatch,
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

    def container_starts(self, spec: dict[str, Any]) -> None:
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
        """Records a Warning if a program of the machine listens on all addresses, or on those of a pod without its own.
        A port that the pod itself has is the program's own affair."""
        from trainwright.cluster.linux.listening_sockets import ANY

        if port in self._reported or len(self._reported) >= _MAX_REPORTED:
            return
        shared = ANY if self._broker is not None else {*ANY, "127.0.0.1", "::1", self._pod["address"]}
        holder = next((one for one in _listeners() if one.port == port and one.address in shared), None)
        if holder is not None:
            self._reported.add(port)
            text = f"port {port} is in use by {_describe(holder)}; {_FIX}"
            self._record("Warning", _PORT_IN_USE, text)


def _listeners() -> list[Listener]:
    from trainwright.cluster.linux.listening_sockets import read_listeners  # few pods need it

    return read_listeners()


def _describe(listener: Listener) -> str:
    """The process that listens, and its pod if it has one. Without its arguments: tenants read this."""
    from trainwright.cluster.linux.listening_sockets import find_holder

    holder = find_holder(listener.inode)
    if holder is None:
        return f"a process of user {listener.uid}, which cannot be inspected"
    pod = _pod_of(holder.pid)
    return f"process {holder.pid} ({holder.name}{f' of pod {pod}' if pod else ''})"


def _pod_of(pid: int) -> str:
    """Empty if it is not a process of a pod, whose environment the node has made."""
    from trainwright.cluster.node.supervisor.processes import read_environment

    variables = read_environment(pid)
    name = next((text[len(_NAME) :] for text in variables if text.startswith(_NAME)), b"")
    return name.decode(errors="replace") if _MARK in variables else ""
