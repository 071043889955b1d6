"""The measured work queue: its measurements, and that it behaves like the plain queue."""

from collections import defaultdict
from collections.abc import Callable

import pytest

from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.workqueue import QueueShutDown
from trainwright.operator.serving.workqueue_metrics import MeasuredQueue

KEY = ObjectKey("PyTorchJob", "here", "job")


class Measured:
    """A queue with a clock that the test sets, and its measurements."""

    def __init__(self) -> None:
        self.now = 100.0
        self.seen: dict[str, list[float]] = defaultdict(list)
        self.queue = MeasuredQueue(
            waited=self._observe("waited"),
            worked=self._observe("worked"),
            added=self._count("added"),
            retried=self._count("retried"),
            clock=lambda: self.now,
        )

    def _observe(self, what: str) -> dict[str, Callable[[float], None]]:
        return {"PyTorchJob": self.seen[what].append}

    def _count(self, what: str) -> dict[str, Callable[[], None]]:
        return {"PyTorchJob": lambda: self.seen[what].append(1)}


async def test_waiting_and_processing_are_measured_separately() -> None:
    measured = Measured()
    measured.queue.add(KEY)
    measured.now += 3
    assert await measured.queue.get() == KEY
    measured.now += 5
    measured.queue.done(KEY)
    assert measured.seen == {"added": [1], "waited": [3], "worked": [5]}


async def test_a_key_that_waits_already_is_not_added_again() -> None:
    measured = Measured()
    for _ in range(3):
        measured.queue.add(KEY)
    assert measured.seen["added"] == [1]
    await measured.queue.get()
    measured.queue.add(KEY)  # it is being processed and waits until that is done
    measured.now += 2
    measured.queue.done(KEY)
    assert measured.seen["added"] == [1, 1]
    measured.now += 4
    await measured.queue.get()
    assert measured.seen["waited"] == [0, 4]


async def test_retries_are_counted() -> None:
    measured = Measured()
    assert measured.queue.retry(KEY) > 0
    assert measured.queue.retry(ObjectKey("PyTorchJob", "here", "other"), at_least=9) > 9
    assert measured.seen["retried"] == [1, 1]
    assert await measured.queue.get() == KEY


async def test_the_state_shows_waiting_and_unfinished_keys() -> None:
    measured = Measured()
    for name in ("a", "b", "c"):
        measured.queue.add(ObjectKey("PyTorchJob", "here", name))
    await measured.queue.get()
    measured.now += 10
    await measured.queue.get()
    measured.now += 1
    state = measured.queue.state()
    assert (state.waiting, state.working) == ({"PyTorchJob": 1}, {"PyTorchJob": 2})
    assert (state.longest_seconds, state.unfinished_seconds) == ({"PyTorchJob": 11}, {"PyTorchJob": 12})


async def test_after_shutdown_no_key_waits() -> None:
    measured = Measured()
    measured.queue.add(KEY)
    measured.queue.shut_down()
    assert measured.queue.state().waiting == {}
    with pytest.raises(QueueShutDown):
        await measured.queue.get()
