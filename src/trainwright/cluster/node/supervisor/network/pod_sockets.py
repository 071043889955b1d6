"""The sockets of a pod as its supervisor sees them: ports of the pod's own, where it listens, and which are taken.

Standard library only.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from trainwright.cluster.node.supervisor.network.listening_ports import ListeningPorts
    from trainwright.cluster.node.supervisor.network.socket_broker import SocketBroker


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
        from trainwright.cluster.node.supervisor.network.socket_broker import SocketBroker, is_taken

        broker = SocketBroker(
            self._pod["address"],
            proc=proc,
            watch=self._watch,
            unwatch=self._unwatch,
            on_bound=lambda port: listening.bound(port, time.monotonic()),
            on_taken=self._report_taken,
        )
        listening = ListeningPorts(lambda port: is_taken(broker.addresses.first, port))
        self._broker, self._listening = broker, listening

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

    def container_ended(self) -> None:
        if self._listening is not None:
            self._listening.container_ended()

    def _report_taken(self, port: int) -> None:
        pass
