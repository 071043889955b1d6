"""Ranks that started again after the first one had succeeded, from the status of their pods."""

from datetime import datetime

from tests.support.objects.jobs import NOW, PodBuilder, at
from trainwright.cli.follow.state.late_ranks import LateRank, late_ranks
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
