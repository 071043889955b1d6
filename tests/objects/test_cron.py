"""Schedules of CronJobs."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from trainwright.objects.cron import ScheduleError, parse_schedule

MOMENT = datetime(2026, 3, 4, 12, 30, 40, tzinfo=UTC)  # a Wednesday


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("* * * * *", "2026-03-04 12:31"),
        ("*/15 * * * *", "2026-03-04 12:45"),
        ("0 3 * * *", "2026-03-05 03:00"),
        ("30 12 4 * *", "2026-04-04 12:30"),
        ("0 0 * * 1-5", "2026-03-05 00:00"),
        ("0 0 * * SUN", "2026-03-08 00:00"),
        ("0 0 13 * 5", "2026-03-06 00:00"),  # the thirteenth or a Friday
        ("5-7,50 8 1 JAN,jul ?", "2026-07-01 08:05"),
        ("0 0 29 2 *", "2028-02-29 00:00"),
        ("@hourly", "2026-03-04 13:00"),
        ("@monthly", "2026-04-01 00:00"),
        ("10/20 * * * *", "2026-03-04 12:50"),
    ],
)
def test_next_time(text: str, expected: str) -> None:
    found = parse_schedule(text).next_after(MOMENT)

    assert found is not None
    assert f"{found:%Y-%m-%d %H:%M}" == expected


def test_time_is_that_of_the_zone() -> None:
    moment = MOMENT.astimezone(ZoneInfo("Asia/Tokyo"))
    found = parse_schedule("0 22 * * *").next_after(moment)

    assert found is not None
    assert found.astimezone(UTC) == datetime(2026, 3, 4, 13, 0, tzinfo=UTC)


def test_schedule_that_never_comes() -> None:
    assert parse_schedule("0 0 30 2 *").next_after(MOMENT) is None


@pytest.mark.parametrize("text", ["", "* * * *", "60 * * * *", "* 24 * * *", "x * * * *", "5-1 * * * *", "*/0 * * * *"])
def test_wrong_schedule_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError):
        parse_schedule(text)
