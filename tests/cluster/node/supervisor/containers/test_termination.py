"""The termination of a container and the order within a pod, without any process."""

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.supervisor.containers.termination import (
    HOOK,
    KILL,
    MINIMUM_SECONDS,
    TERM,
    WAIT,
    Termination,
    turns,
)


def test_a_container_gets_sigterm_at_once_and_sigkill_after_its_grace_period() -> None:
    ending = Termination(100.0, 5.0, hook=False)
    assert ending.next_step(100.0, its_turn=True) == TERM
    assert ending.next_step(104.9, its_turn=True) == WAIT
    assert ending.next_at == 105.0
    assert ending.next_step(105.0, its_turn=True) == KILL
    assert ending.next_at is None


def test_the_time_of_the_hook_is_part_of_the_grace_period() -> None:
    ending = Termination(100.0, 10.0, hook=True)
    assert [ending.next_step(100.0, its_turn=True), ending.next_step(100.0, its_turn=True)] == [HOOK, WAIT]
    ending.hook_ended()
    assert ending.next_step(104.0, its_turn=True) == TERM
    assert ending.kill_at == 110.0


def test_a_hook_that_does_not_end_leaves_two_seconds_for_the_program() -> None:
    ending = Termination(100.0, 10.0, hook=True)
    assert [ending.next_step(100.0, its_turn=True), ending.next_step(100.0, its_turn=True)] == [HOOK, WAIT]
    assert ending.next_step(110.0, its_turn=True) == TERM
    assert ending.kill_at == 112.0


def test_without_a_grace_period_there_is_no_hook() -> None:
    ending = Termination(100.0, 0.0, hook=True)
    assert [ending.next_step(100.0, its_turn=True) for _ in range(3)] == [TERM, KILL, WAIT]


def test_a_later_request_can_shorten_the_grace_period() -> None:
    ending = Termination(100.0, 30.0, hook=False)
    assert ending.next_step(100.0, its_turn=True) == TERM
    ending.shorten(101.0)
    assert ending.next_step(101.0, its_turn=True) == KILL


@given(
    grace=st.floats(0, 30),
    hook=st.booleans(),
    hook_ends=st.floats(0, 60),
    turn_comes=st.floats(0, 60),
    ticks=st.lists(st.floats(0, 100), max_size=40),
)
def test_every_container_gets_both_signals_in_order_and_in_time(
    grace: float, hook: bool, hook_ends: float, turn_comes: float, ticks: list[float]
) -> None:
    ending = Termination(0.0, grace, hook=hook)
    steps: list[tuple[float, str]] = []
    for now in [0.0, *sorted([*ticks, hook_ends, turn_comes, grace, grace + MINIMUM_SECONDS]), 200.0, 300.0]:
        if now >= hook_ends:
            ending.hook_ended()
        while (step := ending.next_step(now, its_turn=now >= turn_comes)) != WAIT:
            steps.append((now, step))
    names = [name for _, name in steps]
    assert names == ([HOOK] if hook and grace > 0 else []) + [TERM, KILL]
    times = {name: at for at, name in steps}
    assert times[TERM] <= grace <= times[KILL]
    if hook and grace > 0 and times[TERM] > 0:
        assert times[KILL] >= times[TERM] + MINIMUM_SECONDS


def test_a_later_request_can_only_shorten_the_grace_period() -> None:
    waiting, ending = Termination(0.0, 30.0, hook=False), Termination(0.0, 30.0, hook=False)
    assert ending.next_step(0.0, its_turn=True) == TERM
    for deadline, expected in ((40.0, 30.0), (10.0, 10.0), (20.0, 10.0)):
        for one in (waiting, ending):
            one.shorten(deadline)
            assert one.next_at == expected
    assert ending.next_step(10.0, its_turn=True) == KILL
    assert waiting.next_step(10.0, its_turn=False) == TERM


CONTAINERS = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=6)


@given(inits=CONTAINERS, mains_running=st.booleans())
def test_sidecars_end_after_the_main_containers_in_reverse_order(
    inits: list[tuple[bool, bool]], mains_running: bool
) -> None:
    found = turns(inits, mains_running=mains_running)
    for index, (sidecar, _) in enumerate(inits):
        later = any(running for _, running in inits[index + 1 :])
        assert found[index] == (not sidecar or not (mains_running or later))
    if not mains_running and any(running for _, running in inits):
        assert any(turn and running for turn, (_, running) in zip(found, inits, strict=True)), "nothing would end"
