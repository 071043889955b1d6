"""The descriptors that a supervisor waits for, each with what to call when it is readable. Standard library only."""

from __future__ import annotations

import select

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Callable


class Poller:
    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[], None]] = {}
        self._poll = select.poll()
        self._urgent_poll = select.poll()

    def watch(self, descriptor: int, handler: Callable[[], None], *, urgent: bool = False) -> None:
        """`urgent`: also while output gathers, because a program waits. A second handler replaces the first one."""
        self._handlers[descriptor] = handler
        self._poll.register(descriptor, select.POLLIN)
        if urgent:
            self._urgent_poll.register(descriptor, select.POLLIN)

    def unwatch(self, descriptor: int) -> None:
        """To be called before the descriptor is closed; does nothing if it is not watched."""
        if self._handlers.pop(descriptor, None) is None:
            return
        self._poll.unregister(descriptor)
        try:
            self._urgent_poll.unregister(descriptor)
        except KeyError:
            pass  # it is not urgent

    def let_output_gather(self, seconds: float) -> None:
        """Waits for this time or until an urgent descriptor is readable, without calling handlers."""
        self._urgent_poll.poll(seconds * 1000)

    def wait(self, milliseconds: float | None) -> None:
        """Calls the handlers of the descriptors that become readable first."""
        for descriptor, _ in self._poll.poll(milliseconds):
            if (handler := self._handlers.get(descriptor)) is not None:  # None: another handler has closed it
                handler()
