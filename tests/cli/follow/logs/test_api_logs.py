"""Logs of the API: every line once, also after a broken connection."""

import io
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from tests.support.cluster.embedded_cluster import UpCommand
from tests.support.objects.shell_jobs import shell_job
from trainwright.api.kinds import PYTORCH
from trainwright.cli.follow.follower import Ending, follow_jobs
from trainwright.cli.follow.logs.api_logs import LogPosition
from trainwright.cli.follow.state.job_state import state_of
from trainwright.cli.output.console import Console
from trainwright.cli.targets import Target
from trainwright.kube.client.sync_client import SyncClient


def timestamp(second: int) -> str:
    return f"2026-11-15T04:00:{second:02}.000000000Z"


def test_a_new_log_is_read_from_the_beginning() -> None:
    assert LogPosition().since_time is None


def test_it_continues_at_the_last_line() -> None:
    position = LogPosition()
    assert position.is_new(timestamp(7))
    assert position.since_time == datetime(2026, 11, 15, 4, 0, 7, tzinfo=UTC)


def test_an_unreadable_timestamp_starts_at_the_beginning() -> None:
    position = LogPosition()
    position.is_new("soon")
    assert position.since_time is None


@given(
    seconds=st.lists(st.integers(0, 5), max_size=40).map(sorted),
    breaks=st.lists(st.integers(0, 40), max_size=5),
    overlap=st.integers(0, 40),
)
def test_broken_streams_neither_lose_nor_repeat_lines(seconds: list[int], breaks: list[int], overlap: int) -> None:
    log = [(timestamp(second), number) for number, second in enumerate(seconds)]
    position, seen = LogPosition(), []
    reached = 0
    for end in [*sorted(breaks), len(log)]:
        position.resume()
        # The server sends all lines since the last timestamp; one that ignores `since` sends even older ones.
        since = next((n for n, (at, _) in enumerate(log) if reached and at >= log[reached - 1][0]), 0)
        for at, number in log[max(since - overlap, 0) : end]:
            if position.is_new(at):
                seen.append(number)
        reached = max(reached, min(end, len(log)))
    assert seen == list(range(len(log)))


def test_logs_of_a_cluster_without_records_are_streamed(embedded: UpCommand) -> None:
    script = "for i in 1 2 3; do echo line $i of $HOSTNAME; done"
    target = Target(embedded.config, embedded=False, kubectl="kubectl")
    stream = io.StringIO()
    with SyncClient(embedded.config) as client:
        job = shell_job("streamed", f"{script}; sleep 1", script, workers=1)
        created = client.create(PYTORCH.resource, job, namespace="default")
        ending = follow_jobs([state_of(created, target)], target, Console(stream, tty=False, colours=False), timeout=60)
        client.delete(PYTORCH.resource, "streamed", namespace="default")
    assert ending is Ending.FINISHED, stream.getvalue()
    for rank in ("master-0", "worker-0"):
        shown = [line for line in stream.getvalue().splitlines() if line.startswith(f"[{rank}] line")]
        assert shown == [f"[{rank}] line {number} of streamed-{rank}" for number in (1, 2, 3)]
