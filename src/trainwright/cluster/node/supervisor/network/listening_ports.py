"""The ports on which the programs of a pod listen at its own address. Standard library only.

A program binds a socket before it listens, and only the former is seen. So the port is looked at a few times after it,
and not any more: a pod that does nothing costs nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_DELAYS = (0.02, 0.2, 1.0, 5.0)
"""Seconds between a bind and the times at which the port is looked at."""
_MAX_PORTS = 100


class ListeningPorts:
    """`find_listening` returns those of some ports at which a socket listens."""

    def __init__(self, find_listening: Callable[[Collection[int]], set[int]]) -> None:
        self._find_listening = find_listening
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
        due = {port: state for port, state in self._pending.items() if state[0] + _DELAYS[state[1]] <= now}
        if not due:
            return False
        found = self._find_listening(due)
        for port, (since, count) in due.items():
            if port in found or count + 1 == len(_DELAYS):
                del self._pending[port]
            else:
                self._pending[port] = (since, count + 1)
        before, self._listening = self._listening, self._listening - due.keys() | found
        return self._listening != before

    def container_ended(self) -> bool:
        """Some of the listeners may be gone. True if the ports have changed."""
        before = self._listening
        if before:
            self._listening = self._find_listening(before)
        return self._listening != before
