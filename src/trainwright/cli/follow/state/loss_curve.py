"""The loss over the time of a run, in one line of characters."""

import math
from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"
_MAX_POINTS = 2048


class LossCurve:
    """The loss readings of a run. When there are many, neighbours are merged: memory stays bounded."""

    def __init__(self) -> None:
        self._points: list[tuple[float, float]] = []
        self._every = 1
        self._skipped = 0

    def add(self, at: float, loss: float) -> None:
        if not math.isfinite(loss):
            return
        self._skipped += 1
        if self._skipped < self._every:
            return
        self._skipped = 0
        self._points.append((at, loss))
        if len(self._points) > _MAX_POINTS:
            self._points = self._points[::2]
            self._every *= 2

    @property
    def points(self) -> Sequence[tuple[float, float]]:
        return self._points


def sparkline(points: Sequence[tuple[float, float]], width: int = 30) -> str:
    """`█▆▄▃▂▁▁`: means over equal parts of the time; empty for fewer than five different readings."""
    if len({value for _, value in points}) < 5:
        return ""
    first, last = points[0][0], points[-1][0]
    width = min(width, len(points))
    parts: list[list[float]] = [[] for _ in range(width)]
    for number, (at, value) in enumerate(points):
        # Programs whose lines arrive at once have no times to tell them apart: then their order counts.
        place = (at - first) / (last - first) if last > first else number / len(points)
        parts[min(int(place * width), width - 1)].append(value)
    means = [sum(part) / len(part) for part in parts if part]
    low, high = min(means), max(means)
    if high <= low:
        return ""
    return "".join(_BARS[round((mean - low) / (high - low) * (len(_BARS) - 1))] for mean in means)
