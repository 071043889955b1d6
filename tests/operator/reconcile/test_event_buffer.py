"""Events are recorded after the writes of a plan, with a bounded delay."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import pytest

from trainwright.engine import JobEvent
from trainwright.objects import Object
from trainwright.operator.reconcile.event_buffer import BATCH_SECONDS, BATCH_SIZE, MAX_DELAY_SECONDS, EventBuffer

JOB: Object = {"kind": "PyTorchJob", "metadata": {"name": "job"}}


def event(number: int) -> JobEvent:
    return JobEvent("Normal", "Test", str(number))


async def test_event_is_recorded_at_once_while_no_plan_is_applied() -> None:
    recorded: list[tuple[Object, JobEvent]] = []
    events = EventBuffer(lambda job, event, _: recorded.append((job, event)))

    events.record(JOB, event(1))

    assert recorded == [(JOB, event(1))]


async def test_event_is_logged_at_once_even_if_it_is_held_back(caplog: pytest.LogCaptureFixture) -> None:
    events = EventBuffer(lambda *_: None)
    job: Object = {"kind": "PyTorchJob", "metadata": {"name": "job", "namespace": "team"}}
    with caplog.at_level(logging.DEBUG, "trainwright.operator"), events.hold():
        events.record(job, JobEvent("Warning", "FailedCreatePod", "quota"))
        assert caplog.messages == ["PyTorchJob/team/job: Warning FailedCreatePod: quota"]


async def test_events_are_held_back_until_the_last_plan_is_applied_and_keep_their_order() -> None:
    recorded: list[str] = []
    events = EventBuffer(lambda _, event, __: recorded.append(event.message))
    with events.hold():
        with events.hold():
            events.record(JOB, event(1))
        events.record(JOB, event(2))
        assert recorded == []
    assert recorded == ["1", "2"]


async def test_error_while_a_plan_is_applied_does_not_hold_events_back_for_ever() -> None:
    recorded: list[str] = []
    events = EventBuffer(lambda _, event, __: recorded.append(event.message))

    def fail() -> None:
        with events.hold():
            events.record(JOB, event(1))
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        fail()
    assert recorded == ["1"]


@pytest.mark.looptime
async def test_slow_write_of_one_job_hardly_delays_a_few_events_of_others() -> None:
    recorded: list[str] = []
    events = EventBuffer(lambda _, event, __: recorded.append(event.message))
    with events.hold():  # for example while a slow admission webhook reviews a pod
        for second in range(5):
            events.record(JOB, event(second))
            await asyncio.sleep(BATCH_SECONDS + 0.1)
            assert len(recorded) == second + 1
    assert recorded == ["0", "1", "2", "3", "4"]


@pytest.mark.looptime
async def test_many_events_are_recorded_in_batches_and_all_after_the_longest_delay() -> None:
    recorded: list[str] = []
    events = EventBuffer(lambda _, event, __: recorded.append(event.message))
    many = 100 * BATCH_SIZE
    with events.hold():
        for number in range(many):
            events.record(JOB, event(number))
        await asyncio.sleep(BATCH_SECONDS / 2)
        assert recorded == []
        await asyncio.sleep(BATCH_SECONDS)
        assert len(recorded) == BATCH_SIZE
        await asyncio.sleep(MAX_DELAY_SECONDS)
        assert recorded == [str(number) for number in range(many)]
        events.record(JOB, event(many))
        await asyncio.sleep(BATCH_SECONDS + 0.1)
        assert len(recorded) == many + 1


async def test_held_event_keeps_the_time_at_which_it_happened() -> None:
    happened = datetime(2026, 11, 15, 4, 0, tzinfo=UTC)
    moment, recorded = happened, []
    events = EventBuffer(lambda _, __, at: recorded.append(at), clock=lambda: moment)
    with events.hold():
        events.record(JOB, event(1))
        moment += timedelta(seconds=12)
    assert recorded == [happened]
