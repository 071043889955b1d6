"""The cost per pod at 1,000, 5,000 and 10,000 pods as a plot: our operator and the tuned Go operator.

`python -m benchmarks.operator_scaling` takes a quarter of an hour on two cores and writes figures and plot into
docs/reference after each size. With `--draw` it only redraws the plot from the existing figures.
"""

import argparse
import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from benchmarks.contenders import OURS, TUNED_PEER, Contender
from benchmarks.job_lifecycle import Scenario
from benchmarks.operator_throughput import run_once

FIGURES = Path(__file__).parents[1] / "docs" / "reference" / "operator-scaling.csv"
PLOT = FIGURES.with_suffix(".svg")

REPLICAS = 8
PODS = (1000, 5000, 10000)

_PANEL, _HEIGHT, _MARGIN, _GAP = 200, 130, 50, 60
_COLOURS = {OURS.label: "#1a7f37", TUNED_PEER.label: "#8250df"}


@dataclass(frozen=True)
class Point:
    contender: str
    pods: int
    cpu_ms_per_pod: float
    peak_megabytes: float
    pods_per_second: float


_PANELS = (
    ("cpu_ms_per_pod", "CPU ms per pod, whole life"),
    ("peak_megabytes", "memory peak, MB"),
    ("pods_per_second", "pods created per second"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operator_scaling", description=__doc__)
    parser.add_argument("--draw", action="store_true", help="only redraw the plot from the existing figures")
    if parser.parse_args().draw:
        PLOT.write_text(draw(read_figures()))
        return
    points: list[Point] = []
    for pods in PODS:
        points += (measure(contender, pods) for contender in (OURS, TUNED_PEER))
        write_figures(points)
        PLOT.write_text(draw(points))


def measure(contender: Contender, pods: int) -> Point:
    one = run_once(contender, Scenario(pods // REPLICAS, REPLICAS))
    assert one.life_cpu is not None
    point = Point(
        contender.label,
        pods,
        cpu_ms_per_pod=round(1000 * one.life_cpu.operator / one.pods, 2),
        peak_megabytes=round(one.peak_megabytes),
        pods_per_second=round(one.pods_per_second),
    )
    print(point, flush=True)
    return point


def write_figures(points: Iterable[Point]) -> None:
    rows = [asdict(point) for point in points]
    with FIGURES.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Point)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_figures() -> list[Point]:
    with FIGURES.open(newline="") as file:
        return [
            Point(
                row["contender"],
                int(row["pods"]),
                float(row["cpu_ms_per_pod"]),
                float(row["peak_megabytes"]),
                float(row["pods_per_second"]),
            )
            for row in csv.DictReader(file)
        ]


def draw(points: Sequence[Point]) -> str:
    """Three panels side by side in SVG, with one line for each contender."""
    width, height = len(_PANELS) * (_PANEL + _GAP) + _GAP // 2, _HEIGHT + 2 * _MARGIN
    box = f'viewBox="0 0 {width} {height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, (field, title) in enumerate(_PANELS):
        lines += _panel(points, field, title, left=_GAP + number * (_PANEL + _GAP))
    for number, (label, colour) in enumerate(_COLOURS.items()):
        left, top = _GAP + 120 * number, height - 8
        lines.append(f'<rect x="{left}" y="{top - 8}" width="14" height="4" fill="{colour}"/>')
        lines.append(f'<text x="{left + 20}" y="{top - 2}">{label}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _panel(points: Sequence[Point], field: str, title: str, *, left: int) -> list[str]:
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
    for label, colour in _COLOURS.items():
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


if __name__ == "__main__":
    main()
