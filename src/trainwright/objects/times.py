"""Times and durations in the formats of the Kubernetes API. Nothing here reads a clock."""

from datetime import UTC, datetime, timedelta


def format_time(moment: datetime) -> str:
    """`2026-11-15T04:05:06Z`: metav1.Time, whole seconds."""
    return moment.astimezone(UTC).isoformat(timespec="seconds")[:-6] + "Z"


def format_micro_time(moment: datetime) -> str:
    """`2026-11-15T04:05:06.123456Z`: metav1.MicroTime."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def parse_time(text: str) -> datetime:
    """Parses RFC 3339 in either letter case. Fractions of a second are cut to microseconds."""
    moment = datetime.fromisoformat(text.upper())
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def unix_seconds(text: str | None) -> float | None:
    """Seconds since the epoch; None without a valid time."""
    try:
        return parse_time(text).timestamp() if text else None
    except ValueError:
        return None


def seconds_after(start: str, seconds: int) -> datetime | None:
    """The time `seconds` after the time stamp `start`; None, which means never, if it is too far to represent."""
    try:
        return parse_time(start) + timedelta(seconds=seconds)
    except OverflowError:
        return None


def human_duration(duration: timedelta) -> str:
    """An age as kubectl prints it: one or two units (`45s`, `2m34s`, `11m`, `3h5m`, `2d4h`)."""
    seconds = int(duration.total_seconds())
    if seconds < 0:
        return "0s" if seconds > -2 else "<invalid>"
    if seconds < 60 * 2:
        return f"{seconds}s"
    minutes = seconds // 60
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 60 * 3:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 24 * 8:
        return _two(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    years = days // 365
    return _two(years, "y", days % 365, "d") if years < 8 else f"{years}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
