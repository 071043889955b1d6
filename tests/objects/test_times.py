"""Times and ages in Kubernetes' formats."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.objects.times import format_micro_time, format_time, human_duration, parse_time

moments = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=70_000)).map(
    lambda age: datetime(1970, 1, 1, tzinfo=UTC) + age
)


def test_a_time_is_written_in_utc_with_whole_seconds() -> None:
    moment = datetime(2026, 11, 15, 6, 5, 6, 999999, tzinfo=timezone(timedelta(hours=2)))
    assert format_time(moment) == "2026-11-15T04:05:06Z"
    assert format_micro_time(moment) == "2026-11-15T04:05:06.999999Z"


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("2026-11-15T04:05:06Z", 0),
        ("2026-11-15t04:05:06z", 0),
        ("2026-11-15T04:05:06.5Z", 500000),
        ("2026-11-15T04:05:06.123456Z", 123456),
        ("2026-11-15T04:05:06.123456789Z", 123456),
        ("2026-11-15T06:05:06.123456789+02:00", 123456),
        ("2026-11-15T04:05:06", 0),
    ],
)
def test_every_spelling_of_a_moment_is_read(text: str, micros: int) -> None:
    assert parse_time(text) == datetime(2026, 11, 15, 4, 5, 6, micros, tzinfo=UTC)


@given(moments)
def test_formatted_micro_time_parses_to_the_same_time(moment: datetime) -> None:
    assert parse_time(format_micro_time(moment)) == moment
    assert parse_time(format_time(moment)) == moment.replace(microsecond=0)


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(seconds=-5), "<invalid>"),
        (timedelta(seconds=-1), "0s"),
        (timedelta(0), "0s"),
        (timedelta(seconds=119), "119s"),
        (timedelta(seconds=120), "2m"),
        (timedelta(seconds=190), "3m10s"),
        (timedelta(minutes=9, seconds=59), "9m59s"),
        (timedelta(minutes=10, seconds=59), "10m"),
        (timedelta(minutes=70), "70m"),
        (timedelta(hours=3, minutes=5), "3h5m"),
        (timedelta(hours=8, minutes=59), "8h"),
        (timedelta(hours=47), "47h"),
        (timedelta(hours=49), "2d1h"),
        (timedelta(days=8, hours=2), "8d"),
        (timedelta(days=367), "367d"),
        (timedelta(days=365 * 2, hours=25), "2y1d"),
        (timedelta(days=365 * 8, hours=2), "8y"),
    ],
)
def test_age_is_formatted_as_in_kubectl(duration: timedelta, text: str) -> None:
    assert human_duration(duration) == text


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=20_000)))
def test_an_age_is_never_overstated_and_loses_less_than_a_tenth(duration: timedelta) -> None:
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400, "y": 365 * 86400}
    shown, number = 0, ""
    for letter in human_duration(duration):
        if letter.isdigit():
            number += letter
        else:
            shown, number = shown + int(number) * units[letter], ""
    seconds = int(duration.total_seconds())
    assert seconds * 0.88 <= shown <= seconds
