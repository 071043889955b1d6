"""The work queue, in fake time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from trainwright.kube.controller.workqueue import HEAD_START, QueueShutDown, WorkQueue

pytestmark = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


async def next_key(queue: WorkQueue[str]) -> str:
    key = await queue.get()
    queue.done(key)
    return key


async def nothing_now(queue: WorkQueue[str]) -> bool:
    getting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    idle = not getting.done()
    getting.cancel()
    return idle


async def test_keys_are_handed_out_in_order() -> None:
    queue = WorkQueue[str]()
    for key in "abca":
        queue.add(key)
    assert [await next_key(queue) for _ in range(3)] == ["a", "b", "c"]
    assert await nothing_now(queue)


async def test_key_is_never_processed_twice_at_once() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    assert await queue.get() == "a"
    queue.add("a")
    queue.add("a")
    assert await nothing_now(queue)
    queue.done("a")
    assert await next_key(queue) == "a"
    assert await nothing_now(queue)


async def test_queue_is_idle_while_keys_are_only_due_later() -> None:
    queue = WorkQueue[str]()
    assert (queue.is_idle, "a" in queue) == (True, False)

    queue.add("a")
    assert (queue.is_idle, "a" in queue) == (False, True)
    await queue.get()
    assert (queue.is_idle, "a" in queue) == (False, True)
    queue.done("a")
    assert (queue.is_idle, "a" in queue) == (True, False)

    queue.add_coalesced("a")
    assert (queue.is_idle, "a" in queue) == (False, True)
    await next_key(queue)
    queue.add_after("a", 60)
    assert (queue.is_idle, "a" in queue) == (True, True)


async def test_new_keys_come_first() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    queue.add("b")
    for key in "xyx":
        queue.add_new(key)
    assert [await next_key(queue) for _ in range(4)] == ["x", "y", "a", "b"]
    assert await nothing_now(queue)


async def test_new_keys_do_not_starve_others() -> None:
    queue = WorkQueue[str](clock=now)
    queue.add("a")
    await asyncio.sleep(HEAD_START - 1)
    queue.add("b")
    queue.add_new("early")
    await asyncio.sleep(2)
    queue.add_new("late")
    assert [await next_key(queue) for _ in range(4)] == ["early", "a", "late", "b"]


async def test_a_key_is_new_or_not_as_it_was_first_added() -> None:
    queue = WorkQueue[str]()
    queue.add_new("a")
    queue.add("a")
    queue.add("b")
    queue.add_new("b")
    assert [len(queue), await next_key(queue), await next_key(queue)] == [2, "a", "b"]
    assert await nothing_now(queue)


async def test_getting_waits_for_a_key() -> None:
    queue = WorkQueue[str]()
    getting = [asyncio.create_task(queue.get()) for _ in range(2)]
    await asyncio.sleep(1)
    queue.add("a")
    queue.add("b")
    assert sorted(await asyncio.gather(*getting)) == ["a", "b"]


async def test_a_key_for_later_comes_at_its_time() -> None:
    queue = WorkQueue[str]()
    started = now()
    queue.add_after("late", 10)
    queue.add_after("soon", 2)
    assert [await next_key(queue), now() - started] == ["soon", 2]
    assert [await next_key(queue), now() - started] == ["late", 10]


async def test_of_several_times_the_earliest_counts() -> None:
    queue = WorkQueue[str]()
    started = now()
    for seconds in (10, 3, 7):
        queue.add_after("a", seconds)
    assert [await next_key(queue), now() - started] == ["a", 3]
    await asyncio.sleep(60)
    assert await nothing_now(queue)


async def test_adding_a_key_at_once_does_not_cancel_its_later_time() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 5)
    queue.add("a")
    started = now()
    assert [await next_key(queue), now() - started] == ["a", 0]
    assert [await next_key(queue), now() - started] == ["a", 5]


async def test_later_time_can_be_cancelled() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", 5)
    queue.add_after("b", 6)
    queue.cancel("a")
    queue.cancel("never added")
    started = now()
    assert [await next_key(queue), now() - started] == ["b", 6]
    assert await nothing_now(queue)


async def test_a_time_that_has_passed_is_now() -> None:
    queue = WorkQueue[str]()
    queue.add_after("a", -1)
    assert await next_key(queue) == "a"


async def test_retries_pause_longer_and_longer_until_they_are_forgotten() -> None:
    queue = WorkQueue[str](jitter=lambda: 1.0, longest_delay=1.0)
    pauses = []
    for _ in range(10):
        started = now()
        queue.retry("a")
        await next_key(queue)
        pauses.append(round(now() - started, 6))
    assert pauses == [0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    assert queue.retry("b") == 0.005
    queue.forget("a")
    assert queue.retry("a") == 0.005


async def test_a_retry_does_not_come_before_the_server_wants_it_but_within_the_longest_pause() -> None:
    queue = WorkQueue[str](jitter=lambda: 1.0, longest_delay=40.0)
    assert queue.retry("a", at_least=10.0) == 10.005
    assert queue.retry("a", at_least=10.0) == 10.01
    assert queue.retry("b", at_least=10**9) == 40.005


async def test_however_long_a_server_was_away_the_next_try_comes_within_a_minute() -> None:
    queue = WorkQueue[str]()
    began, failures = now(), 0
    while now() - began < 600:
        queue.retry("a")
        assert await next_key(queue) == "a"
        queue.done("a")
        failures += 1
    assert queue.retry("a") <= 60
    assert failures < 40


async def test_first_event_of_a_burst_is_immediate_and_the_others_are_coalesced() -> None:
    queue = WorkQueue[str](coalesce_seconds=0.5)
    started = now()
    queue.add_coalesced("a")
    assert [await next_key(queue), now() - started] == ["a", 0]
    for _ in range(3):
        queue.add_coalesced("a")
        await asyncio.sleep(0.1)
    queue.add_coalesced("b")
    assert await next_key(queue) == "b"
    assert [await next_key(queue), now() - started] == ["a", 0.5]
    await asyncio.sleep(0.5)
    queue.add_coalesced("a")
    assert [await next_key(queue), now() - started] == ["a", 1]


async def test_key_that_is_added_while_it_is_processed_is_coalesced() -> None:
    queue = WorkQueue[str](coalesce_seconds=0.5)
    queue.add("a")
    await queue.get()
    queue.add_coalesced("a")
    await asyncio.sleep(2)
    queue.done("a")
    started = now()
    assert await nothing_now(queue)
    assert [await next_key(queue), now() - started] == ["a", 0.5]


async def test_add_is_not_delayed_by_coalescing() -> None:
    queue = WorkQueue[str](coalesce_seconds=0.5)
    queue.add("a")
    await queue.get()
    queue.add_coalesced("a")
    queue.add("a")
    queue.done("a")
    started = now()
    assert [await next_key(queue), now() - started] == ["a", 0]
    queue.add_coalesced("a")
    queue.add("a")
    assert [await next_key(queue), now() - started] == ["a", 0]
    await asyncio.sleep(2)
    assert await nothing_now(queue)


async def test_coalesced_keys_are_dropped_at_shut_down() -> None:
    queue = WorkQueue[str](coalesce_seconds=0.5)
    queue.add("a")
    await next_key(queue)
    queue.add_coalesced("a")
    queue.shut_down()
    queue.add_coalesced("b")
    await asyncio.sleep(1)
    assert len(queue) == 0


async def test_shut_down_ends_all_getters() -> None:
    queue = WorkQueue[str]()
    queue.add_after("later", 5)
    waiting = [asyncio.create_task(queue.get()) for _ in range(3)]
    await asyncio.sleep(1)
    queue.shut_down()
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [QueueShutDown] * 3
    queue.add("a")
    queue.add_new("b")
    queue.add_after("a", 1)
    with pytest.raises(QueueShutDown):
        await queue.get()


async def test_keys_in_progress_can_be_done_after_shut_down() -> None:
    queue = WorkQueue[str]()
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add_new("b")
    queue.shut_down()
    queue.done("a")
    assert len(queue) == 0


async def test_a_worker_that_is_cancelled_while_it_wakes_up_loses_no_key() -> None:
    queue = WorkQueue[str]()
    first = asyncio.create_task(queue.get())
    second = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    queue.add("a")
    first.cancel()
    assert await second == "a"


class QueueMachine(RuleBasedStateMachine):
    """Any mix of adding and working: what was added after it was last handed out is handed out again, alone."""

    keys = st.sampled_from("abc")

    def __init__(self) -> None:
        super().__init__()
        self.queue = WorkQueue[str](coalesce_seconds=0)
        self.due: set[str] = set()
        self.working: set[str] = set()

    @rule(key=keys, new=st.booleans())
    def add(self, key: str, new: bool) -> None:
        (self.queue.add_new if new else self.queue.add)(key)
        self.due.add(key)

    @precondition(lambda self: self.due - self.working)
    @rule()
    def get(self) -> None:
        key = _at_once(self.queue.get)
        assert key in self.due - self.working
        self.due.remove(key)
        self.working.add(key)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.queue.done(key)
        self.working.remove(key)

    @invariant()
    def what_waits_is_due_and_nobody_works_on_it(self) -> None:
        assert len(self.queue) == len(self.due - self.working)


def _at_once(get: Callable[[], Coroutine[Any, Any, str]]) -> str:
    """Runs a coroutine that has no reason to wait."""
    try:
        get().send(None)
    except StopIteration as returned:
        return str(returned.value)
    raise AssertionError("the queue made a worker wait although a key was there")


TestQueueMachine = QueueMachine.TestCase
