"""Start-up time and memory of the embedded cluster, compared with a real kube-apiserver and etcd."""

import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.processes import embedded_cluster, resident_megabytes
from tests.support.kubernetes.controlplane import running_control_plane

ROUNDS = 3


def main() -> None:
    embedded, real = [], []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for number in range(ROUNDS):
            embedded.append(_measure_embedded(directory / f"embedded-{number}"))
            real.append(_measure_real(directory / f"real-{number}"))
    seconds, megabytes = _medians(embedded)
    real_seconds, real_megabytes = _medians(real)
    print(f"{'':28}{'ready after':>14}{'memory':>12}")
    print(f"{'trainwright up':28}{seconds:>12.2f} s{megabytes:>9.0f} MB")
    print(f"{'kube-apiserver + etcd':28}{real_seconds:>12.2f} s{real_megabytes:>9.0f} MB")
    print(f"{'ratio':28}{seconds / real_seconds:>13.2f}x{megabytes / real_megabytes:>11.2f}x")


def _measure_embedded(directory: Path) -> tuple[float, float]:
    with embedded_cluster(directory) as (process, seconds):
        return seconds, resident_megabytes(process.pid)


def _measure_real(directory: Path) -> tuple[float, float]:
    directory.mkdir()
    started = time.monotonic()
    with running_control_plane(directory) as plane:
        seconds = time.monotonic() - started
        return seconds, resident_megabytes(plane.apiserver.pid) + resident_megabytes(plane.etcd.pid)


def _medians(measurements: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(one for one, _ in measurements), statistics.median(two for _, two in measurements)
