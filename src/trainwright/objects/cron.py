"""Schedules of CronJobs: five fields, or a name such as @daily."""

from dataclasses import dataclass
from datetime import datetime, timedelta

_MACROS = {
    "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}  # fmt: skip
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 6))
_FURTHEST = timedelta(days=5 * 366)
"""A schedule such as 30 February never comes."""


class ScheduleError(ValueError):
    """The text is not a schedule."""


@dataclass(frozen=True, slots=True)
class Schedule:
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def next_after(self, moment: datetime) -> datetime | None:
        """The first time after `moment`, in its time zone; None if there is none within five years."""
        try:
            candidate = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
            end = candidate + _FURTHEST
        except OverflowError:  # at the end of the calendar
            return None
        while candidate < end:
            if candidate.month not in self.months or not self._is_day(candidate):
                candidate = candidate.replace(hour=0, minute=0) + timedelta(days=1)
            elif candidate.hour not in self.hours:
                candidate = candidate.replace(minute=0) + timedelta(hours=1)
            elif candidate.minute not in self.minutes:
                candidate += timedelta(minutes=1)
            else:
                return candidate
        return None

    def _is_day(self, moment: datetime) -> bool:
        """If both fields are restricted, one of them has to match."""
        day, weekday = moment.day in self.days, (moment.weekday() + 1) % 7 in self.weekdays
        return day and weekday if self.any_day or self.any_weekday else day or weekday


def parse_schedule(text: str) -> Schedule:
    fields = _MACROS.get(text.strip(), text).split()
    if len(fields) != len(_FIELDS):
        raise ScheduleError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    values = [_values(field, low, high) for field, (_, low, high) in zip(fields, _FIELDS, strict=True)]
    return Schedule(
        values[0], values[1], values[2], values[3], values[4],
        any_day=fields[2].startswith(("*", "?")), any_weekday=fields[4].startswith(("*", "?")),
    )  # fmt: skip


def _values(field: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        span, slash, step_text = part.partition("/")
        step = _number(step_text, low, high) if slash else 1
        if step <= 0:
            raise ScheduleError(f"step of range should be a positive number: {part}")
        if span in {"*", "?"}:
            first, last = low, high
        else:
            start, dash, stop = span.partition("-")
            first = _number(start, low, high)
            last = _number(stop, low, high) if dash else high if slash else first
        if high == 6 and last == 7:
            found |= {0}
            last = 6 if first < 7 else 7
            first = min(first, 7)
        if first < low or (last > high and not (high == 6 and first == 7)):
            raise ScheduleError(f"end of range ({last}) above maximum ({high}): {part}")
        if first > last:
            raise ScheduleError(f"beginning of range ({first}) beyond end of range ({last}): {part}")
        found |= {value for value in range(first, last + 1, step) if value <= high}
    return frozenset(found)


def _number(text: str, low: int, high: int) -> int:
    names = _MONTHS if (low, high) == (1, 12) else _DAYS if (low, high) == (0, 6) else ()
    if text.lower() in names:
        return names.index(text.lower()) + low
    if not text.isascii() or not text.isdecimal() or len(text) > 4:
        raise ScheduleError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    return int(text)
