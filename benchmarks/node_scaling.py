"""The embedded node with 10, 100 and 1,000 sleeping pods as a plot: rate, CPU and memory.

`python -m benchmarks.node_scaling` takes some minutes on two cores and writes figures and plot into docs/reference.
"""

import asyncio
import csv
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from benchmarks.namespace import create_namespace
from benchmarks.node import WatchedPods, embedded, is_ready
from benchmarks.plot import draw
from benchmarks.processes import cpu_seconds, proportional_megabytes
from tests.support.node.namespace import RunningNode
from trainwright.api.kinds import PYTORCH

FIGURES = Path(__file__).parents[1] / "docs" / "reference" / "node-scaling.csv"
PLOT = FIGURES.with_suffix(".svg")

PODS = (10, 100, 1000)
_OPERATOR_POD = 1
"""The Node offers room for 1,000 pods, the operator's own among them."""
_SETTLE_SECONDS = 10.0
_CONTENDER = "embedded node"
_COLOURS = {_CONTENDER: "#1a7f37"}
_PANELS = (
    ("pods_per_second", "pods to Ready per second"),
    ("cluster_cpu_ms_per_pod", "CPU of the cluster, ms per pod"),
    ("cluster_megabytes", "memory of the cluster (PSS), MB"),
    ("supervisor_megabytes_per_pod", "supervisor (PSS), MB per pod"),
)


@dataclass(frozen=True)
class Point:
    contender: str
    pods: int
    pods_per_second: float
    cluster_cpu_ms_per_pod: float
    cluster_megabytes: float
    supervisor_megabytes_per_pod: float
    idle_percent: float
    """CPU of the cluster while all pods sleep, in percent of a core."""


def main() -> None:
    points = asyncio.run(_measure())
    with FIGURES.open("w", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Point)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(point) for point in points)
    PLOT.write_text(plot(points))


def read_figures() -> list[Point]:
    with FIGURES.open(newline="") as file:
        return [
            Point(row.pop("contender"), int(row.pop("pods")), **{name: float(value) for name, value in row.items()})
            for row in csv.DictReader(file)
        ]


def plot(points: Sequence[Point]) -> str:
    return draw(points, _PANELS, _COLOURS)


async def _measure() -> list[Point]:
    """Adds pods to those that run until there are as many as the next size."""
    points: list[Point] = []
    with tempfile.TemporaryDirectory() as name:
        async with embedded(Path(name)) as running:
            await create_namespace(running.client, PYTORCH.resource)
            watching = asyncio.create_task((watched := WatchedPods(running.client)).run())
            await asyncio.sleep(_SETTLE_SECONDS)
            present = _OPERATOR_POD
            for pods in PODS:
                points.append(await _grow(running, watched, present, pods))
                print(points[-1], flush=True)
                present = pods
            watching.cancel()
    return points


async def _grow(running: RunningNode, watched: WatchedPods, present: int, pods: int) -> Point:
    added, before = pods - present, _cluster_cpu(running)
    seconds = await watched.pods(added, f"of-{pods}", ["sleep", "3600"], is_ready)
    await asyncio.sleep(_SETTLE_SECONDS)  # the events are written
    cpu = _cluster_cpu(running) - before
    cluster, supervisors = _processes(running)
    idle_from, since = _cluster_cpu(running), time.monotonic()
    await asyncio.sleep(_SETTLE_SECONDS)
    idle = (_cluster_cpu(running) - idle_from) / (time.monotonic() - since)
    return Point(
        _CONTENDER,
        pods,
        pods_per_second=round(added / seconds, 1),
        cluster_cpu_ms_per_pod=round(1000 * cpu / added, 1),
        cluster_megabytes=round(sum(map(proportional_megabytes, cluster)), 1),
        supervisor_megabytes_per_pod=round(sum(map(proportional_megabytes, supervisors)) / pods, 2),
        idle_percent=round(100 * idle, 2),
    )


def _cluster_cpu(running: RunningNode) -> float:
    return sum(map(cpu_seconds, _processes(running)[0]))


def _processes(running: RunningNode) -> tuple[list[int], list[int]]:
    """The cluster process and the fork server, and the supervisors of pods."""
    found = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in running.processes()}
    supervisors = [pid for pid, words in found.items() if b"/supervise.py\0/" in words]
    return [pid for pid in found if pid not in supervisors], supervisors


if __name__ == "__main__":
    main()
