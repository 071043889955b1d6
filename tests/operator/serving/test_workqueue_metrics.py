"""The stopwatch on the work queue: what it tells, and that the queue behaves as without it."""

from collections import defaultdict
from collections.abc import Callable

import pytest

from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.workqueue import QueueShutDown
from trainwright.operator.serving.workqueue_metrics import MeasuredQueue

KEY = ObjectKey("PyTorchJob", "here", "job")


class Stopwatch:
    """A clock that a test sets, and all that the queue told, by what and kind."""

    def __init__(self) -> None:
        self.now = 100.0
        self.told: dict[str, list[float]] = defaultdict(list)
        self.queue = MeasuredQueue(
            waited=self._hear("waited"),
            worked=self._hear("worked"),
            added=self._count("added"),
            retried=self._count("retried"),
            clock=lambda: self.now,
        )

    def _hear(self, what: str) -> dict[str, Callable[[float], None]]:
        return {"PyTorchJob": self.told[what].append}

    def _count(self, what: str) -> dict[str, Callable[[], None]]:
        return {"PyTorchJob": lambda: self.told[what].append(1)}


async def test_waiting_and_working_are_measured_apart() -> None:
    watch = Stopwatch()
    watch.queue.add(KEY)
    watch.now += 3
    assert await watch.queue.get() == KEY
    watch.now += 5
    watch.queue.done(KEY)
    assert watch.told == {"added": [1], "waited": [3], "worked": [5]}


async def test_what_waits_already_is_not_added_again() -> None:
    watch = Stopwatch()
    for _ in range(3):
        watch.queue.add(KEY)
    assert watch.told["added"] == [1]
    await watch.queue.get()
    watch.queue.add(KEY)  # it is being worked on: its turn comes afterwards
    watch.now += 2
    watch.queue.done(KEY)
    assert watch.told["added"] == [1, 1]
    watch.now += 4
    await watch.queue.get()
    assert watch.told["waited"] == [0, 4]


async def test_retries_are_counted() -> None:
    watch = Stopwatch()
    assert watch.queue.retry(KEY) > 0
    assert watch.queue.retry(ObjectKey("PyTorchJob", "here", "other"), at_least=9) > 9
    assert watch.told["retried"] == [1, 1]
    assert await watch.queue.get() == KEY


async def test_the_state_shows_who_waits_and_who_is_at_it_for_how_long() -> None:
    watch = Stopwatch()
    for name in ("a", "b", "c"):
        watch.queue.add(ObjectKey("PyTorchJob", "here", name))
    await watch.queue.get()
    watch.now += 10
    await watch.queue.get()
    watch.now += 1
    state = watch.queue.state()
    assert (state.waiting, state.working) == ({"PyTorchJob": 1}, {"PyTorchJob": 2})
    assert (state.longest_seconds, state.unfinished_seconds) == ({"PyTorchJob": 11}, {"PyTorchJob": 12})


async def test_after_the_end_nobody_waits() -> None:
    watch = Stopwatch()
    watch.queue.add(KEY)
    watch.queue.shut_down()
    assert watch.queue.state().waiting == {}
    with pytest.raises(QueueShutDown):
        await watch.queue.get()
