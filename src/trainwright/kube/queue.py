"""The work queue of a controller: keys, each handed to one worker at a time, however often and early they are added."""

import asyncio
import random
from collections import deque
from collections.abc import Callable

from trainwright.kube.retries import backoff


class QueueShutDown(Exception):  # noqa: N818 (named as asyncio's own)
    """There is nothing more to get."""


class WorkQueue:
    """A key that is added while it waits is handed out once; while it is worked on, once more after `done`."""

    def __init__(
        self,
        *,
        first_delay: float = 0.005,
        longest_delay: float = 300.0,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self._jitter = jitter
        self._waiting: dict[str, None] = {}
        self._working: set[str] = set()
        self._again: dict[str, None] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._shut_down = False

    def __len__(self) -> int:
        """Keys that are waiting for a worker now."""
        return len(self._waiting)

    def add(self, key: str) -> None:
        if self._shut_down:
            return
        if key in self._working:
            self._again[key] = None
        elif key not in self._waiting:
            self._waiting[key] = None
            self._wake_one()

    def add_after(self, key: str, seconds: float) -> None:
        """Adds the key later. Of several times for one key the earliest counts."""
        if self._shut_down:
            return
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        timer = self._timers.get(key)
        if timer is None or due < timer.when():
            self._cancel_timer(key)
            self._timers[key] = loop.call_at(due, self._due, key)

    def retry(self, key: str) -> float:
        """Adds the key after a pause that doubles with every retry until `forget`; returns the pause."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        pause = backoff(failures, jitter=self._jitter(), first=self._first_delay, longest=self._longest_delay)
        self.add_after(key, pause)
        return pause

    def cancel(self, key: str) -> None:
        """Takes back the later time that the key was to be added at, if there is one."""
        self._cancel_timer(key)

    def forget(self, key: str) -> None:
        """The key has been worked on with success: its next retry starts with the shortest pause."""
        self._failures.pop(key, None)

    async def get(self) -> str:
        """The next key; `done` must follow. Raises QueueShutDown after `shut_down`."""
        while not self._waiting:
            if self._shut_down:
                raise QueueShutDown
            await self._wait()
        key = next(iter(self._waiting))
        del self._waiting[key]
        self._working.add(key)
        return key

    def done(self, key: str) -> None:
        self._working.discard(key)
        if key in self._again:
            del self._again[key]
            self.add(key)

    def shut_down(self) -> None:
        """Drops everything that waits; whoever gets, now or later, is told to stop."""
        self._shut_down = True
        self._waiting.clear()
        self._again.clear()
        for key in list(self._timers):
            self._cancel_timer(key)
        for getter in self._getters:
            if not getter.done():
                getter.set_result(None)

    def _due(self, key: str) -> None:
        del self._timers[key]
        self.add(key)

    async def _wait(self) -> None:
        getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        try:
            await getter
        except asyncio.CancelledError:
            # It may have been woken and cancelled at once; then another one has to do the work.
            if getter.done() and not getter.cancelled() and self._waiting:
                self._wake_one()
            raise
        finally:
            if getter in self._getters:
                self._getters.remove(getter)

    def _wake_one(self) -> None:
        while self._getters:
            getter = self._getters.popleft()
            if not getter.done():
                getter.set_result(None)
                return

    def _cancel_timer(self, key: str) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
