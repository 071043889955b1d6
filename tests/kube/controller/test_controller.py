"""The controller runtime: when workers start and stop, and what each outcome means for the queue."""

import asyncio
import itertools
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.background import in_background
from tests.support.servers.fake_apiserver import FakeApiServer
from trainwright.kube.client.errors import TooManyRequests, Unreachable
from trainwright.kube.controller.controller import DRAIN_SECONDS, Controller
from trainwright.kube.controller.outcome import Done, Outcome, RequeueAfter, Retry, Terminal
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store
from trainwright.kube.controller.workqueue import WorkQueue
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS

pytestmark = pytest.mark.looptime

log = logging.getLogger("trainwright.test")

Step = Outcome | Exception | None


class Reconciler:
    """Plays given outcomes, key by key, and then is done; notes when each key was reconciled."""

    def __init__(self, **steps: list[Step]) -> None:
        self.steps = steps
        self.times: dict[str, list[float]] = defaultdict(list)
        self.errors: list[tuple[str, Exception]] = []
        self.outcomes: list[tuple[str, Outcome]] = []

    async def reconcile(self, key: str) -> Outcome | None:
        self.times[key].append(asyncio.get_running_loop().time())
        step = self.steps[key].pop(0) if self.steps.get(key) else Done()
        if isinstance(step, Exception):
            raise step
        return step

    @asynccontextmanager
    async def running(self, *keys: str, **options: Any) -> AsyncIterator[Controller[str]]:
        controller = Controller(
            self.reconcile,
            log=log,
            queue=WorkQueue[str](first_delay=1.0, coalesce_seconds=0.1, jitter=lambda: 1.0),
            on_error=lambda key, error: self.errors.append((key, error)),
            on_reconciled=lambda key, outcome, _seconds: self.outcomes.append((key, outcome)),
            **options,
        )
        for key in keys:
            controller.queue.add(key)
        async with in_background(controller.run()) as task:
            yield controller
            assert not task.done() or task.exception() is None


async def count(reconciler: Reconciler, key: str = "a", *, after: float = 1000.0) -> int:
    await asyncio.sleep(after)
    return len(reconciler.times[key])


@pytest.mark.parametrize("outcome", [None, Done(), Terminal("bad field")])
async def test_done_and_terminal_wait_for_a_change(outcome: Step) -> None:
    reconciler = Reconciler(a=[outcome])
    async with reconciler.running("a") as controller:
        assert await count(reconciler) == 1
        controller.queue.add("a")
        assert await count(reconciler) == 2
    assert reconciler.outcomes[0] == ("a", outcome or Done())


async def test_requeue_after_reconciles_again_at_its_time() -> None:
    reconciler = Reconciler(a=[RequeueAfter(30)])
    async with reconciler.running("a"):
        assert await count(reconciler) == 2
    first, second = reconciler.times["a"]
    assert second - first == pytest.approx(30)


async def test_requeue_at_once_is_coalesced_with_changes() -> None:
    reconciler = Reconciler(a=[RequeueAfter(0)])
    async with reconciler.running("a") as controller:
        await asyncio.sleep(0.05)
        controller.queue.add_coalesced("a")
        assert await count(reconciler) == 2


async def test_a_reconciliation_replaces_the_earlier_requeue_time() -> None:
    reconciler = Reconciler(a=[RequeueAfter(100), Done()])
    async with reconciler.running("a") as controller:
        assert await count(reconciler, after=10) == 1
        controller.queue.add("a")
        assert await count(reconciler) == 2


async def test_a_time_that_is_set_during_a_reconciliation_is_kept() -> None:
    times: list[float] = []

    async def reconcile(key: str) -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            controller.queue.add_after(key, 5)

    controller: Controller[str] = Controller(reconcile, log=log)
    controller.queue.add("a")
    async with in_background(controller.run()):
        await asyncio.sleep(100)
    assert times[1] - times[0] == pytest.approx(5)


@pytest.mark.parametrize("step", [Retry("conflict"), Unreachable("no route"), ZeroDivisionError("ours")])
async def test_failures_are_retried_with_a_growing_back_off(step: Step) -> None:
    reconciler = Reconciler(a=[step] * 3)
    async with reconciler.running("a"):
        assert await count(reconciler) == 4
    times = reconciler.times["a"]
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses == sorted(pauses)
    assert pauses[2] > 1.9 * pauses[1] > 3.5 * pauses[0] > 0


async def test_success_resets_the_back_off() -> None:
    reconciler = Reconciler(a=[Retry("x"), Retry("x"), RequeueAfter(10), Retry("x")])
    async with reconciler.running("a"):
        assert await count(reconciler) == 5
    times = reconciler.times["a"]
    assert times[4] - times[3] == pytest.approx(times[1] - times[0])


async def test_retry_after_of_the_server_is_honoured() -> None:
    error = TooManyRequests({"code": 429, "message": "slow down"}, retry_after=45)
    reconciler = Reconciler(a=[error])
    async with reconciler.running("a"):
        assert await count(reconciler) == 2
    first, second = reconciler.times["a"]
    assert second - first > 45
    assert reconciler.outcomes[0] == ("a", Retry("slow down", 45))


async def test_an_unexpected_error_is_reported_and_does_not_stop_other_keys(caplog: pytest.LogCaptureFixture) -> None:
    error = ZeroDivisionError("ours")
    reconciler = Reconciler(a=[error])
    async with reconciler.running("a", "b", workers=1):
        assert await count(reconciler, "b", after=0.5) == 1
    assert reconciler.errors == [("a", error)]
    assert "a: unexpected error" in caplog.text


async def test_the_level_of_messages_about_retries_can_be_chosen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    reconciler = Reconciler(a=[Retry("namespace is not empty")])
    async with reconciler.running("a", retry_log_level=logging.WARNING):
        await count(reconciler)
    (record,) = (record for record in caplog.records if "namespace is not empty" in record.message)
    assert record.levelno == logging.WARNING


async def test_workers_start_after_the_first_list_and_the_hook() -> None:
    server = FakeApiServer()
    server.write("first")
    store: Store[Object] = Store()
    seen: list[str] = []
    may_work = asyncio.Event()

    async def reconcile(key: str) -> None:
        seen.append(key)

    def enqueue(_before: Object | None, after: Object | None) -> None:
        controller.queue.add(after["metadata"]["name"] if after else "")

    reflector = Reflector(server, CONFIG_MAPS, store, on_change=enqueue)
    controller: Controller[str] = Controller(reconcile, log=log, reflectors=[reflector], before_work=may_work.wait)
    async with in_background(controller.run()):
        await controller.synced.wait()
        await asyncio.sleep(10)
        assert seen == []

        may_work.set()
        await asyncio.sleep(10)
        assert seen == ["first"]


async def test_an_error_of_the_hook_ends_the_controller() -> None:
    async def fail() -> None:
        raise PermissionError

    controller: Controller[str] = Controller(Reconciler().reconcile, log=log, before_work=fail)
    with pytest.raises(ExceptionGroup):
        await controller.run()


async def test_stop_ends_a_controller_that_still_waits_to_start() -> None:
    async def never() -> None:
        await asyncio.Event().wait()

    controller: Controller[str] = Controller(Reconciler().reconcile, log=log, before_work=never)
    async with in_background(controller.run()) as task:
        await asyncio.sleep(1)
        controller.stop()
        await asyncio.sleep(0.1)
        assert task.done()


async def stopped(reconcile: Callable[[str], Awaitable[None]]) -> float:
    """Seconds from `stop` until the end of the run, with one key in progress."""
    controller: Controller[str] = Controller(reconcile, log=log)
    controller.queue.add("a")
    async with asyncio.TaskGroup() as group:
        task = group.create_task(controller.run())
        await asyncio.sleep(0.5)
        controller.stop()
        began = asyncio.get_running_loop().time()
        await task
    return asyncio.get_running_loop().time() - began


async def test_stop_waits_for_reconciliations_in_progress() -> None:
    finished = []

    async def slow(key: str) -> None:
        await asyncio.sleep(2)
        finished.append(key)

    assert await stopped(slow) < DRAIN_SECONDS
    assert finished == ["a"]


async def test_stop_cancels_reconciliations_that_take_too_long() -> None:
    async def stuck(_key: str) -> None:
        await asyncio.Event().wait()

    assert await stopped(stuck) == pytest.approx(DRAIN_SECONDS)


async def test_a_cancelled_controller_leaves_no_timers() -> None:
    reconciler = Reconciler(a=[RequeueAfter(10)])
    async with reconciler.running("a") as controller:
        await asyncio.sleep(1)
    await asyncio.sleep(100)
    assert len(controller.queue) == 0
    assert len(reconciler.times["a"]) == 1
