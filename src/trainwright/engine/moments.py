"""Moments that a duration in a manifest leads to. A duration beyond the calendar means never."""

from datetime import datetime, timedelta

from trainwright.objects.times import parse_time


def after(start: str, seconds: int) -> datetime | None:
    """`seconds` after the time stamp `start`; None if that is never."""
    try:
        return parse_time(start) + timedelta(seconds=seconds)
    except OverflowError:
        return None
