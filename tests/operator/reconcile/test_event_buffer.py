"""Events follow the writes, but never by more than a moment."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

import pytest

from trainwright.engine import JobEvent
from trainwright.objects import Object
from trainwright.operator.reconcile.event_buffer import LONGEST_WAIT, TRICKLE, TRICKLE_SECONDS, Announcer

JOB: Object = {"kind": "PyTorchJob", "metadata": {"name": "job"}}


def event(number: int) -> JobEvent:
    return JobEvent("Normal", "Test", str(number))


async def test_without_writes_an_event_goes_out_at_once() -> None:
    told: list[tuple[Object, JobEvent]] = []
    announcer = Announcer(lambda about, event, _: told.append((about, event)))
    announcer.announce(JOB, event(1))
    assert told == [(JOB, event(1))]


async def test_the_log_of_decisions_has_every_event_at_once(caplog: pytest.LogCaptureFixture) -> None:
    announcer = Announcer(lambda *_: None)
    job: Object = {"kind": "PyTorchJob", "metadata": {"name": "job", "namespace": "team"}}
    with caplog.at_level(logging.DEBUG, "trainwright.operator"), announcer.writing():
        announcer.announce(job, JobEvent("Warning", "FailedCreatePod", "quota"))
        assert caplog.messages == ["PyTorchJob/team/job: Warning FailedCreatePod: quota"]


async def test_events_wait_until_the_last_write_is_done_and_keep_their_order() -> None:
    told: list[str] = []
    announcer = Announcer(lambda _, event, __: told.append(event.message))
    with announcer.writing():
        with announcer.writing():
            announcer.announce(JOB, event(1))
        announcer.announce(JOB, event(2))
        assert told == []
    assert told == ["1", "2"]


async def test_a_write_that_fails_does_not_hold_events_for_ever() -> None:
    told: list[str] = []
    announcer = Announcer(lambda _, event, __: told.append(event.message))

    def fail() -> None:
        with announcer.writing():
            announcer.announce(JOB, event(1))
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        fail()
    assert told == ["1"]


@pytest.mark.looptime
async def test_while_one_job_is_busy_a_few_events_of_others_hardly_wait() -> None:
    told: list[str] = []
    announcer = Announcer(lambda _, event, __: told.append(event.message))
    with announcer.writing():  # a pod whose creation an admission webhook holds up, for example
        for second in range(5):
            announcer.announce(JOB, event(second))
            await asyncio.sleep(TRICKLE_SECONDS + 0.1)
            assert len(told) == second + 1
    assert told == ["0", "1", "2", "3", "4"]


@pytest.mark.looptime
async def test_of_many_events_some_trickle_out_and_all_go_after_a_while() -> None:
    told: list[str] = []
    announcer = Announcer(lambda _, event, __: told.append(event.message))
    many = 100 * TRICKLE
    with announcer.writing():
        for number in range(many):
            announcer.announce(JOB, event(number))
        await asyncio.sleep(TRICKLE_SECONDS / 2)
        assert told == []
        await asyncio.sleep(TRICKLE_SECONDS)
        assert len(told) == TRICKLE
        await asyncio.sleep(LONGEST_WAIT)
        assert told == [str(number) for number in range(many)]
        announcer.announce(JOB, event(many))
        await asyncio.sleep(TRICKLE_SECONDS + 0.1)
        assert len(told) == many + 1


async def test_an_event_that_waited_still_says_when_it_happened() -> None:
    happened = datetime(2026, 11, 15, 4, 0, tzinfo=UTC)
    moment, told = happened, []
    announcer = Announcer(lambda _, __, at: told.append(at), clock=lambda: moment)
    with announcer.writing():
        announcer.announce(JOB, event(1))
        moment += timedelta(seconds=12)
    assert told == [happened]
