"""The work queue of a controller: no two workers get the same key at the same time."""

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
"""Seconds by which a new key is ahead of other keys: a key waits at most this long for new keys."""


class QueueShutDown(Exception):  # noqa: N818 (named as asyncio's own)
    """The queue was shut down."""


class WorkQueue(Generic[K]):
    """A key that is added while it waits is handed out once; while it is processed, once more after `done`.

    Keys are handed out in the order in which they were added; new ones have a head start. `coalesce_seconds` is the
    time after `done` for which `add_coalesced` delays a key.
    """

    def __init__(
        self,
        *,
        first_delay: float = 0.005,
        longest_delay: float = 60.0,
        coalesce_seconds: float = 0.1,
        jitter: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self._coalesce_seconds = coalesce_seconds
        self._jitter = jitter
        self._clock = clock
        # By key, in order: since when it waits.
        self._waiting: dict[K, float] = {}
        self._new: dict[K, float] = {}
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._again_coalesced: set[K] = set()
        # By key, oldest first: when it was last done, within `coalesce_seconds`.
        self._done_at: dict[K, float] = {}
        self._coalescing: dict[K, asyncio.TimerHandle] = {}
        self._timers: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        self._getters: deque[asyncio.Future[None]] = deque()
        self._shut_down = False

    def __len__(self) -> int:
        """Keys that are waiting for a worker now."""
        return len(self._waiting) + len(self._new)

    def __contains__(self, key: K) -> bool:
        """True if the key is waiting, is processed, or will be added later."""
        return any(key in keys for keys in (self._waiting, self._new, self._working, self._coalescing, self._timers))

    @property
    def is_idle(self) -> bool:
        """True if no key is waiting or processed now, or delayed by `add_coalesced`."""
        return not (len(self) or self._working or self._coalescing)

    def add(self, key: K) -> None:
        self._enqueue(key, self._waiting)

    def add_new(self, key: K) -> None:
        """Adds a key that was never processed: it comes before other keys, except those that have waited for longer
        than `HEAD_START`."""
        self._enqueue(key, self._new)

    def add_coalesced(self, key: K) -> None:
        """Adds the key, but not within `coalesce_seconds` after it was last done: the first event of a burst is
        processed at once, and the others together."""
        if self._shut_down or key in self._coalescing:
            return
        if key in self._working:
            self._again_coalesced.add(key)
            return
        due = self._done_at.get(key, -math.inf) + self._coalesce_seconds
        loop = asyncio.get_running_loop()
        if due <= loop.time():
            self.add(key)
        else:
            self._coalescing[key] = loop.call_at(due, self._due, self._coalescing, key)

    def add_after(self, key: K, seconds: float) -> None:
        """Adds the key later. If a key is added several times, the earliest time counts."""
        if self._shut_down:
            return
        if seconds <= 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        timer = self._timers.get(key)
        if timer is None or due < timer.when():
            self.cancel(key)
            self._timers[key] = loop.call_at(due, self._due, self._timers, key)

    def retry(self, key: K, *, at_least: float = 0.0) -> float:
        """Adds the key after `at_least` seconds plus a back-off that doubles with every retry until `forget`. Returns
        the seconds."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        pause = backoff(failures, jitter=self._jitter(), first=self._first_delay, longest=self._longest_delay)
        pause += min(at_least, self._longest_delay)
        self.add_after(key, pause)
        return pause

    def cancel(self, key: K) -> None:
        """Cancels `add_after` and `retry` of the key."""
        if timer := self._timers.pop(key, None):
            timer.cancel()

    def forget(self, key: K) -> None:
        """Resets the back-off of the key."""
        self._failures.pop(key, None)

    async def get(self) -> K:
        """The next key; the caller calls `done` for it. Raises QueueShutDown after `shut_down`."""
        while not len(self):
            if self._shut_down:
                raise QueueShutDown
            await self._wait()
        key = self._pop()
        self._working.add(key)
        if timer := self._coalescing.pop(key, None):
            timer.cancel()  # this run covers it
        return key

    def done(self, key: K) -> None:
        self._working.discard(key)
        if self._coalesce_seconds:
            self._set_done_at(key)
        again, coalesced = key in self._again, key in self._again_coalesced
        self._again.discard(key)
        self._again_coalesced.discard(key)
        if again:
            self.add(key)
        elif coalesced:
            self.add_coalesced(key)

    def shut_down(self) -> None:
        """Drops all keys; every `get`, pending or later, raises QueueShutDown."""
        self._shut_down = True
        self._waiting.clear()
        self._new.clear()
        self._again.clear()
        self._again_coalesced.clear()
        for timers in (self._timers, self._coalescing):
            for timer in timers.values():
                timer.cancel()
            timers.clear()
        while self._getters:
            self._wake_one()

    def _enqueue(self, key: K, waiting: dict[K, float]) -> None:
        if self._shut_down:
            return
        if key in self._working:
            self._again.add(key)
        elif key not in self._waiting and key not in self._new:
            waiting[key] = self._clock()
            self._wake_one()

    def _pop(self) -> K:
        since_new = next(iter(self._new.values()), math.inf) - HEAD_START
        since = next(iter(self._waiting.values()), math.inf)
        waiting = self._new if since_new <= since else self._waiting
        key = next(iter(waiting))
        del waiting[key]
        return key

    def _due(self, timers: dict[K, asyncio.TimerHandle], key: K) -> None:
        del timers[key]
        self.add(key)

    def _set_done_at(self, key: K) -> None:
        now = asyncio.get_running_loop().time()
        self._done_at.pop(key, None)
        self._done_at[key] = now
        while self._done_at[oldest := next(iter(self._done_at))] < now - self._coalesce_seconds:
            del self._done_at[oldest]

    async def _wait(self) -> None:
        getter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._getters.append(getter)
        try:
            await getter
        except asyncio.CancelledError:
            # If this getter was woken and cancelled at the same time, another one must process the key.
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
