"""The work queue of a controller: keys, each handed to one worker at a time, however often and early they are added."""

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from trainwright.kube.client.retries import backoff

K = TypeVar("K", bound=Hashable)

HEAD_START = 15.0
"""Seconds by which a new key is ahead of the others: so long these wait for new ones at most, however many come."""


class QueueShutDown(Exception):  # noqa: N818 (named as asyncio's own)
    """There is nothing more to get."""


class WorkQueue(Generic[K]):
    """A key that is added while it waits is handed out once; while it is worked on, once more after `done`.

    Keys come in the order in which they were added, new ones as if that had been a while ago. `rest` is how many
    seconds after `done` a key rests from what is added by `add_rested`.
    """

    def __init__(
        self,
        *,
        first_delay: float = 0.005,
        longest_delay: float = 60.0,
        rest: float = 0.1,
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self._rest = rest
        self._jitter = jitter
        self._clock = clock
        # By key, first in line first: since when it waits.
        self._waiting: dict[K, float] = {}
        self._new: dict[K, float] = {}
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._again_rested: set[K] = set()
        # By key, oldest first: when it was last done, as long as it may rest from that.
        self._done_at: dict[K, float] = {}
        self._resting: dict[K, asyncio.TimerHandle] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._shut_down = False

    def __len__(self) -> int:
        """Keys that are waiting for a worker now."""
        return len(self._waiting) + len(self._new)

    def add(self, key: K) -> None:
        self._line_up(key, self._waiting)

    def add_new(self, key: K) -> None:
        """Adds a key that nobody has worked on yet: it comes before all others but those that have waited long."""
        self._line_up(key, self._new)

    def add_rested(self, key: K) -> None:
        """Adds the key, but not before it has rested since it was last done: of a storm of news the first is worked on
        at once and the rest together."""
        if self._shut_down or key in self._resting:
            return
        if key in self._working:
            self._again_rested.add(key)
            return
        rested = self._done_at.get(key, -math.inf) + self._rest
        loop = asyncio.get_running_loop()
        if rested <= loop.time():
            self.add(key)
        else:
            self._resting[key] = loop.call_at(rested, self._rested, key)

    def add_after(self, key: K, seconds: float) -> None:
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

    def retry(self, key: K, *, at_least: float = 0.0) -> float:
        """Adds the key after a pause that doubles with every retry until `forget`, on top of what somebody asked us to
        wait; returns the pause."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        pause = backoff(failures, jitter=self._jitter(), first=self._first_delay, longest=self._longest_delay)
        pause += min(at_least, self._longest_delay)
        self.add_after(key, pause)
        return pause

    def cancel(self, key: K) -> None:
        """Takes back the later time that the key was to be added at, if there is one."""
        self._cancel_timer(key)

    def forget(self, key: K) -> None:
        """The key has been worked on with success: its next retry starts with the shortest pause."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key; `done` must follow. Raises QueueShutDown after `shut_down`."""
        while not len(self):
            if self._shut_down:
                raise QueueShutDown
            await self._wait()
        key = self._first()
        self._working.add(key)
        if timer := self._resting.pop(key, None):
            timer.cancel()  # whatever it was to be added for is known now
        return key

    def done(self, key: K) -> None:
        self._working.discard(key)
        if self._rest:
            self._note_done(key)
        again, rested = key in self._again, key in self._again_rested
        self._again.discard(key)
        self._again_rested.discard(key)
        if again:
            self.add(key)
        elif rested:
            self.add_rested(key)

    def shut_down(self) -> None:
        """Drops everything that waits; whoever gets, now or later, is told to stop."""
        self._shut_down = True
        self._waiting.clear()
        self._new.clear()
        self._again.clear()
        self._again_rested.clear()
        for key in list(self._timers):
            self._cancel_timer(key)
        for timer in self._resting.values():
            timer.cancel()
        self._resting.clear()
        for getter in self._getters:
            if not getter.done():
                getter.set_result(None)

    def _line_up(self, key: K, line: dict[K, float]) -> None:
        if self._shut_down:
            return
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting and key not in self._new:
            line[key] = self._clock()
            self._wake_one()

    def _first(self) -> K:
        """Takes the key out that is next."""
        since_new = next(iter(self._new.values()), math.inf) - HEAD_START
        since = next(iter(self._waiting.values()), math.inf)
        line = self._new if since_new <= since else self._waiting
        key = next(iter(line))
        del line[key]
        return key

    def _due(self, key: K) -> None:
        del self._timers[key]
        self.add(key)

    def _rested(self, key: K) -> None:
        del self._resting[key]
        self.add(key)

    def _note_done(self, key: K) -> None:
        now = asyncio.get_running_loop().time()
        self._done_at.pop(key, None)
        self._done_at[key] = now
        while self._done_at[oldest := next(iter(self._done_at))] < now - self._rest:
            del self._done_at[oldest]

    async def _wait(self) -> None:
        getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        try:
            await getter
        except asyncio.CancelledError:
            # It may have been woken and cancelled at once; then another one has to do the work.
            if getter.done() and not getter.cancelled() and len(self):
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

    def _cancel_timer(self, key: K) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
