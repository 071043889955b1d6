"""Spreads status writes that change only the numbers of pods.

A few such writes go out at once. When the pods of many jobs start at the same time, the others are spread over some
seconds: most are then written together with a condition of their job, which never waits.
"""

import math
import time
from collections.abc import Callable

from trainwright.kube.controller.object_key import ObjectKey

BURST = 20
"""The number of writes that go out at once after a quiet time."""
INTERVAL = 0.1
"""Seconds between two writes that do not go out at once."""
LONGEST_DELAY = 10.0
"""Seconds that a write waits at most, however many jobs change."""


class StatusWritePacer:
    """Gives each job whose numbers have changed a time to write them. `clock` is monotonic."""

    def __init__(self, *, burst: int = BURST, clock: Callable[[], float] = time.monotonic) -> None:
        self._credit = (burst - 1) * INTERVAL
        self._clock = clock
        self._due: dict[ObjectKey, float] = {}
        self._next = -math.inf

    def delay(self, key: ObjectKey) -> float:
        """Seconds until the numbers of the job are due; 0 if they are."""
        now = self._clock()
        if key not in self._due:
            due = self._due[key] = max(self._next, now - self._credit)
            self._next = min(due + INTERVAL, now + LONGEST_DELAY)
        return max(0.0, self._due[key] - now)

    def forget(self, key: ObjectKey) -> None:
        """The numbers of the job are written, or need not be."""
        self._due.pop(key, None)
