"""Logs after a broken connection: every line once."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.follow.logs.api_logs import LogPosition


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
