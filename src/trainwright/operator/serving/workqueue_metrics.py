"""The operator's work queue with measurements: how long each job waited and was processed, by kind."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.workqueue import WorkQueue

Observe = Mapping[str, Callable[[float], None]]
Count = Mapping[str, Callable[[], None]]


def _numbers() -> dict[str, float]:
    return defaultdict(float)


@dataclass
class QueueState:
    """The present numbers of the queue, by kind."""

    waiting: dict[str, float] = field(default_factory=_numbers)
    working: dict[str, float] = field(default_factory=_numbers)
    unfinished_seconds: dict[str, float] = field(default_factory=_numbers)
    longest_seconds: dict[str, float] = field(default_factory=_numbers)


class MeasuredQueue(WorkQueue[ObjectKey]):
    """Calls `waited`, `worked`, `added` and `retried` of the kind when a job of it is processed or added."""

    def __init__(
        self,
        *,
        waited: Observe,
        worked: Observe,
        added: Count,
        retried: Count,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clock=clock)
        self._waited, self._worked, self._added, self._retried = waited, worked, added, retried
        self._added_at: dict[ObjectKey, float] = {}
        self._started_at: dict[ObjectKey, float] = {}

    def _enqueue(self, key: ObjectKey, line: dict[ObjectKey, float]) -> None:
        before = len(self)
        super()._enqueue(key, line)
        if len(self) > before:
            self._added_at[key] = self._clock()
            self._added[key.kind]()

    def retry(self, key: ObjectKey, *, at_least: float = 0.0) -> float:
        self._retried[key.kind]()
        return super().retry(key, at_least=at_least)

    async def get(self) -> ObjectKey:
        key = await super().get()
        now = self._clock()
        self._started_at[key] = now
        self._waited[key.kind](now - self._added_at.pop(key, now))
        return key

    def done(self, key: ObjectKey) -> None:
        now = self._clock()
        self._worked[key.kind](now - self._started_at.pop(key, now))
        super().done(key)

    def shut_down(self) -> None:
        super().shut_down()
        self._added_at.clear()

    def state(self) -> QueueState:
        state, now = QueueState(), self._clock()
        for key in self._added_at:
            state.waiting[key.kind] += 1
        for key, started in self._started_at.items():
            kind = key.kind
            state.working[kind] += 1
            state.unfinished_seconds[kind] += now - started
            state.longest_seconds[kind] = max(state.longest_seconds[kind], now - started)
        return state
