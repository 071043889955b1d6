"""Holds events back while plans are being carried out: a pod that starts is worth more than the news of another."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainwright.engine import JobEvent
from trainwright.objects import Object

LONGEST_WAIT = 2.0
"""Seconds after which events go out however busy we are."""

Tell = Callable[[Object, JobEvent], None]


class Announcer:
    """Calls `tell` for each event, in order, as soon as nothing is being written. Needs a running event loop."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._waiting: deque[tuple[Object, JobEvent]] = deque()
        self._writing = 0
        self._timer: asyncio.TimerHandle | None = None

    @contextmanager
    def writing(self) -> Iterator[None]:
        """While any of these blocks is open, events wait."""
        self._writing += 1
        try:
            yield
        finally:
            self._writing -= 1
            if not self._writing:
                self.flush()

    def announce(self, about: Object, event: JobEvent) -> None:
        self._waiting.append((about, event))
        if not self._writing:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LONGEST_WAIT, self.flush)

    def flush(self) -> None:
        """Lets everything out that waits."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            self._tell(*self._waiting.popleft())
