"""Plots of figures by the number of pods, as SVG."""

from collections.abc import Mapping, Sequence
from typing import Protocol

_PANEL, _HEIGHT, _MARGIN, _GAP = 200, 130, 50, 60


class Point(Protocol):
    @property
    def contender(self) -> str: ...

    @property
    def pods(self) -> int: ...


def draw(points: Sequence[Point], panels: Sequence[tuple[str, str]], colours: Mapping[str, str]) -> str:
    """Panels side by side in SVG, each a field of the points and its title, with one line for each contender."""
    width, height = len(panels) * (_PANEL + _GAP) + _GAP // 2, _HEIGHT + 2 * _MARGIN
    box = f'viewBox="0 0 {width} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, (field, title) in enumerate(panels):
        lines += _panel(points, field, title, colours, left=_GAP + number * (_PANEL + _GAP))
    for number, (label, colour) in enumerate(colours.items()):
        left, top = _GAP + 120 * number, height - 8
        lines.append(f'<rect x="{left}" y="{top - 8}" width="14" height="4" fill="{colour}"/>')
        lines.append(f'<text x="{left + 20}" y="{top - 2}">{label}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _panel(points: Sequence[Point], field: str, title: str, colours: Mapping[str, str], *, left: int) -> list[str]:
    sizes = sorted({point.pods for point in points})
    most = _round_up(max(getattr(point, field) for point in points))
    bottom = _MARGIN + _HEIGHT

    def place(pods: float, value: float) -> tuple[float, float]:
        return left + _PANEL * pods / sizes[-1], bottom - _HEIGHT * value / most

    lines = [f'<text x="{left}" y="{_MARGIN - 18}" font-weight="bold">{title}</text>']
    for value in (0, most / 2, most):
        _, y = place(0, value)
        lines.append(f'<line x1="{left}" x2="{left + _PANEL}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d0d7de"/>')
        lines.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for pods in sizes:
        x, _ = place(pods, 0)
        lines.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{pods:,}</text>')
    for label, colour in colours.items():
        spots = [place(point.pods, getattr(point, field)) for point in points if point.contender == label]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        lines += (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in spots)
    return lines


def _round_up(value: float) -> float:
    """The next of 1, 2, 4, 6, 8, 10, 20, 40, …, whose halves are round numbers too."""
    scale = 1.0
    while scale * 10 < value:
        scale *= 10
    return next(step * scale for step in (1, 2, 4, 6, 8, 10) if step * scale >= value)
