"""What a user is told about ranks that start again too late, and from which silence on."""

from datetime import datetime

import pytest

from tests.support.objects.jobs import NOW, PodBuilder, at
from trainwright.cli.follow.state.rank_troubles import LateRank, RankOutput, Silence, find_silence, late_ranks
from trainwright.objects.kinds.pods import Pod, read_pod
from trainwright.objects.times import format_time

START = NOW.timestamp()


def restarted(started: datetime, *, exit_code: int | None = 134, created: datetime = NOW) -> Pod:
    pod = PodBuilder("Worker", 0).running(restarts=1).raw()
    pod["metadata"]["creationTimestamp"] = format_time(created)
    (status,) = pod["status"]["containerStatuses"]
    status["state"] = {"running": {"startedAt": format_time(started)}}
    status["lastState"] = {} if exit_code is None else {"terminated": {"exitCode": exit_code}}
    return read_pod(pod)


MASTER = PodBuilder("Master", 0).succeeded(finished=at(100)).pod()


def test_a_rank_that_was_restarted_after_the_success_of_the_first_is_late() -> None:
    pods = [("master-0", MASTER), ("worker-0", restarted(at(101)))]
    assert late_ranks(pods, START + 111) == [LateRank("worker-0", 134, "master-0", START + 100)]


def test_it_has_ten_seconds_to_end() -> None:
    assert late_ranks([("master-0", MASTER), ("worker-0", restarted(at(101)))], START + 110.5) == []


def test_a_rank_that_was_restarted_before_has_joined() -> None:
    assert late_ranks([("master-0", MASTER), ("worker-0", restarted(at(50)))], START + 200) == []


def test_a_rank_whose_pod_was_replaced_is_late_too() -> None:
    replaced = restarted(at(103), exit_code=None, created=at(102))
    assert late_ranks([("master-0", MASTER), ("worker-0", replaced)], START + 200) == [
        LateRank("worker-0", None, "master-0", START + 100)
    ]


def test_while_the_first_rank_runs_none_is_late() -> None:
    master = PodBuilder("Master", 0).running().pod()
    assert late_ranks([("master-0", master), ("worker-0", restarted(at(101)))], START + 200) == []
    assert late_ranks([], START) == []


def printed(rank: str, *times: float) -> RankOutput:
    output = RankOutput(rank)
    for time in times:
        output.add(time)
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
