"""The end of a log."""

import re
from collections.abc import Sequence

from trainwright.insight.exceptions import Line
from trainwright.insight.progress import read_line

CHECKED_LINES = 500


def last_lines(lines: Sequence[Line], limit: int) -> list[str]:
    """The last lines without blank ones and without native stack frames, which are many."""
    kept = [line.text.rstrip() for line in lines[-CHECKED_LINES:] if not _NATIVE_FRAME.match(line.text)]
    return kept[-limit:]


def tail(lines: Sequence[Line]) -> str:
    return "\n".join(last_lines(lines, 40))


_NATIVE_FRAME = re.compile(r"\s{0,9}(?:frame #\d{1,4}: |@\s{1,9}0x[0-9a-f]|\[bt\] \(|#\d{1,4} +0x[0-9a-f])|\s{0,20}$")


def is_progress(text: str) -> bool:
    reading = read_line(text)
    return reading is not None and (reading.step is not None or reading.epoch is not None)
