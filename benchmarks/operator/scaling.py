"""The cost per pod at 1,000, 5,000 and 10,000 pods as a plot: our operator and the tuned Go operator.

`python -m benchmarks.operator.scaling` takes a quarter of an hour on two cores and writes figures and plot into
docs/reference after each size. With `--draw` it only redraws the plot from the existing figures.
"""

import argparse
import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from benchmarks.operator.contenders import OURS, TUNED_PEER, Contender
from benchmarks.operator.job_lifecycle import Scenario
from benchmarks.operator.throughput import run_once
from benchmarks.plot import draw

FIGURES = Path(__file__).parents[2] / "docs" / "reference" / "operator-scaling.csv"
PLOT = FIGURES.with_suffix(".svg")

REPLICAS = 8
PODS = (1000, 5000, 10000)

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
    parser = argparse.ArgumentParser(prog="python -m benchmarks.operator.scaling", description=__doc__)
    parser.add_argument("--draw", action="store_true", help="only redraw the plot from the existing figures")
    if parser.parse_args().draw:
        PLOT.write_text(plot(read_figures()))
        return
    points: list[Point] = []
    for pods in PODS:
        points += (measure(contender, pods) for contender in (OURS, TUNED_PEER))
        write_figures(points)
        PLOT.write_text(plot(points))


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


def plot(points: Sequence[Point]) -> str:
    return draw(points, _PANELS, _COLOURS)


if __name__ == "__main__":
    main()
