"""The ports on which the programs of a pod listen at its own address. Standard library only.

A program binds a socket before it listens, and only the former is seen. So the port is looked at a few times after it,
and not any more: a pod that does nothing costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Callable

_DELAYS = (0.02, 0.2, 1.0, 5.0)
"""Seconds between a bind and the times at which the port is looked at."""
_MAX_PORTS = 100


class ListeningPorts:
    def __init__(self, is_listening: Callable[[int], bool]) -> None:
        self._is_listening = is_listening
        self._pending: dict[int, tuple[float, int]] = {}
        """By port: when it was bound, and how many times it was looked at since."""
        self._listening: set[int] = set()

    @property
    def ports(self) -> list[int]:
        return sorted(self._listening)

    @property
    def next_at(self) -> float | None:
        """When a port is looked at, in monotonic seconds."""
        return min((since + _DELAYS[count] for since, count in self._pending.values()), default=None)

    def bound(self, port: int, now: float) -> None:
        if len(self._pending) + len(self._listening) < _MAX_PORTS:
            self._pending[port] = (now, 0)

    def tick(self, now: float) -> bool:
        """True if the ports have changed."""
        before = set(self._listening)
        for port, (since, count) in list(self._pending.items()):
            if since + _DELAYS[count] > now:
                continue
            if self._is_listening(port):
                self._listening.add(port)
            else:
                self._listening.discard(port)
            if port in self._listening or count + 1 == len(_DELAYS):
                del self._pending[port]
            else:
                self._pending[port] = (since, count + 1)
        return self._listening != before

    def container_ended(self) -> bool:
        """Some of the listeners may be gone. True if the ports have changed."""
        before = set(self._listening)
        self._listening = {port for port in before if self._is_listening(port)}
        return self._listening != before
