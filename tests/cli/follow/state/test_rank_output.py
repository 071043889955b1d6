"""From which silence on a user is told that ranks print nothing."""

import pytest

from trainwright.cli.follow.state.rank_output import RankOutput, Silence, find_silence


def printed(rank: str, *times: float) -> RankOutput:
    output = RankOutput(rank)
    for at in times:
        output.add(at)
    return output


STARTED = {"master-0": 0.0, "worker-0": 0.0}


def test_a_job_that_prints_nothing_is_reported_after_a_while() -> None:
    outputs = [RankOutput("master-0"), RankOutput("worker-0")]
    assert find_silence(outputs, STARTED, 29.0) is None
    assert find_silence(outputs, STARTED, 31.0) == Silence(("master-0", "worker-0"), 31.0, everyone=True)


def test_a_program_that_prints_once_per_epoch_is_not_reported() -> None:
    outputs = [printed("master-0", 5.0, 100.0, 200.0), RankOutput("worker-0")]
    assert find_silence(outputs, STARTED, 400.0) is None
    assert find_silence(outputs, STARTED, 501.0) is not None


def test_a_rank_that_stops_printing_is_reported() -> None:
    outputs = [printed("master-0", *range(100)), printed("worker-0", *range(20))]
    assert find_silence(outputs, STARTED, 75.0) is None
    assert find_silence(outputs, STARTED, 100.0) == Silence(("worker-0",), 81.0, everyone=False)


def test_ranks_that_only_print_at_the_start_are_not_reported() -> None:
    outputs = [printed("master-0", *range(1000)), printed("worker-0", 1.0, 1.1)]
    assert find_silence(outputs, STARTED, 1000.0) is None


@pytest.mark.parametrize("outputs", [[], [RankOutput("worker-7")]])
def test_only_running_ranks_can_be_silent(outputs: list[RankOutput]) -> None:
    assert find_silence(outputs, STARTED, 1000.0) is None
