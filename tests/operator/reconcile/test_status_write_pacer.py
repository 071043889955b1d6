"""Numbers of pods are written at once while few jobs change, and within a bounded time however many do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.kube.controller.object_key import ObjectKey
from trainwright.operator.reconcile.status_write_pacer import BURST, INTERVAL, LONGEST_DELAY, StatusWritePacer


def job(number: int) -> ObjectKey:
    return ObjectKey("PyTorchJob", "team", f"job-{number}")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_few_changes_are_due_at_once_and_the_others_one_after_the_other() -> None:
    clock = Clock()
    pacer = StatusWritePacer(clock=clock)

    delays = [pacer.delay(job(number)) for number in range(BURST + 3)]

    assert delays == pytest.approx([0.0] * BURST + [INTERVAL, 2 * INTERVAL, 3 * INTERVAL])


def test_a_change_is_due_at_once_again_after_a_quiet_time() -> None:
    clock = Clock()
    pacer = StatusWritePacer(clock=clock)
    for number in range(1000):
        pacer.delay(job(number))
    assert pacer.delay(job(1000)) == LONGEST_DELAY

    clock.now += LONGEST_DELAY + BURST * INTERVAL

    delays = [pacer.delay(job(number)) for number in range(2000, 2000 + BURST)]
    assert delays == pytest.approx([0.0] * BURST)


def test_a_job_gets_a_new_time_after_its_numbers_were_written() -> None:
    pacer = StatusWritePacer(burst=1, clock=Clock())
    assert pacer.delay(job(1)) == 0.0
    assert pacer.delay(job(1)) == 0.0, "until they are written"

    pacer.forget(job(1))

    assert pacer.delay(job(1)) > 0.0


steps = st.lists(st.tuples(st.integers(0, 40), st.floats(0.0, 3.0), st.booleans()), max_size=300)


@given(steps, st.integers(1, BURST))
def test_no_job_waits_longer_than_the_bound(steps: list[tuple[int, float, bool]], burst: int) -> None:
    """Each step is a reconcile of a job whose numbers differ, after some seconds. Another change of the job may
    overtake them."""
    clock = Clock()
    pacer = StatusWritePacer(burst=burst, clock=clock)
    since: dict[int, float] = {}
    for number, seconds, overtaken in steps:
        clock.now += seconds
        changed = since.setdefault(number, clock.now)

        delay = pacer.delay(job(number))

        assert delay == 0.0 or clock.now + delay <= changed + LONGEST_DELAY + 1e-6
        if overtaken or not delay:
            pacer.forget(job(number))
            del since[number]
