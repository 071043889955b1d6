"""Builds and starts of images, compared with buildah and podman on the same Dockerfile and base in the same run.

Root, Debian's buildah, podman, runc and mmdebstrap are needed.
"""

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.processes import TRAINWRIGHT, embedded_cluster
from tests.support.images.tools import ContainerTools, are_installed, debian_base
from trainwright.kube.client.kubeconfig import load_kubeconfig
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects.resources import PODS

ROUNDS = 3
FILES = 2_500
"""Of the context; with those of Debian and of RUN the image has 10,000."""
LAYER_GIGABYTES = 2

_DOCKERFILE = """FROM base
WORKDIR /app
COPY files /app/files
RUN python3 -c "import pathlib; [pathlib.Path(f'/app/{n}').write_text('x' * 4000) for n in range(500)]"
RUN rm -r /usr/share/doc
ENTRYPOINT ["/bin/true"]
"""


def main() -> None:
    if not are_installed():
        print("left out: needs root and Debian's buildah, podman, skopeo, runc and mmdebstrap")
        return
    with tempfile.TemporaryDirectory(prefix="trainwright-bench-") as name:
        directory = Path(name)
        _make_context(directory)
        here, there = _Here(directory), _There(directory)
        rows = [
            ("base of 200 MB, cold", *_medians(here.build_base, there.build_base)),
            ("build, cold", *_medians(here.build_cold, there.build_cold)),
            ("build, warm", *_medians(here.build, there.build)),
        ]
        _print_rows("s", rows)
        _print_rows("MB", [("disk of ten images", here.ten_images() / 1e6, there.ten_images() / 1e6)])
        with embedded_cluster(directory / "cluster") as _:
            _print_rows("s", [("pod, create to end", *_medians(here.run_pod, there.run_container, rounds=5))])
        print(f"{'memory to unpack 2 GB':34}{_unpack_megabytes(directory):>8.0f} MB")


def _make_context(directory: Path) -> None:
    base, app = directory / "base", directory / "app"
    (app / "files").mkdir(parents=True)
    base.mkdir()
    for number in range(FILES):
        (app / "files" / f"{number}.txt").write_text(f"{number}\n" * 200)
    (app / "Dockerfile").write_text(_DOCKERFILE)
    shutil.copy(debian_base(), base / "base.tar")
    (base / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n")


class _Here:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._data = directory / "cluster"

    def _run(self, *words: str | Path) -> str:
        command = [*TRAINWRIGHT, *map(str, words), "--data-dir", str(self._data)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def build_base(self) -> None:
        self._run("image", "build", "--no-cache", "-t", "base", self._directory / "base")

    def build(self) -> None:
        self._run("image", "build", "-t", "app", self._directory / "app")

    def build_cold(self) -> None:
        self._run("image", "build", "--no-cache", "-t", "app", self._directory / "app")

    def ten_images(self) -> int:
        self._run("image", "prune", "--force")
        for number in range(10):
            context = _small_context(self._directory, number)
            self._run("image", "build", "-t", f"small-{number}", context)
        return _disk(self._data / "images")

    def run_pod(self) -> None:
        kubeconfig = self._directory / "cluster.kubeconfig"
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "bench"},
            "spec": {
                "restartPolicy": "Never",
                "containers": [{"name": "c", "image": "app", "imagePullPolicy": "Never"}],
            },
        }
        client = SyncClient(load_kubeconfig(kubeconfig))
        client.create(PODS, pod, namespace="default")
        while (phase := client.get(PODS, "bench", namespace="default")["status"].get("phase")) in {
            "Pending",
            "Running",
        }:
            time.sleep(0.005)
        assert phase == "Succeeded", phase
        client.delete(PODS, "bench", namespace="default")
        client.close()


class _There:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tools = ContainerTools(directory)

    def build_base(self) -> None:
        self._tools.build("base", self._directory / "base", "--no-cache")

    def build(self) -> None:
        self._tools.build("app", self._directory / "app")

    def build_cold(self) -> None:
        self._tools.build("app", self._directory / "app", "--no-cache")

    def ten_images(self) -> int:
        for number in range(10):
            self._tools.build(f"small-{number}", _small_context(self._directory, number))
        return _disk(self._directory / "storage")

    def run_container(self) -> None:
        self._tools.run_image("app")


def _small_context(directory: Path, number: int) -> Path:
    context = directory / f"small-{number}"
    context.mkdir(exist_ok=True)
    (context / "program.py").write_text(f"print({number})\n")
    (context / "Dockerfile").write_text("FROM base\nCOPY program.py /program.py\nRUN echo done > /done\n")
    return context


def _disk(directory: Path) -> int:
    """Bytes on the disk, files with several names once."""
    answer = subprocess.run(["du", "-s", "-B1", str(directory)], check=True, capture_output=True, text=True)
    return int(answer.stdout.split()[0])


def _medians(here: Callable[[], None], there: Callable[[], None], rounds: int = ROUNDS) -> tuple[float, float]:
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(_seconds(here))
        theirs.append(_seconds(there))
    return statistics.median(ours), statistics.median(theirs)


def _seconds(action: Callable[[], None]) -> float:
    started = time.monotonic()
    action()
    return time.monotonic() - started


def _print_rows(unit: str, rows: list[tuple[str, float, float]]) -> None:
    for name, ours, theirs in rows:
        print(f"{name:34}{ours:>8.2f} {unit:3}{theirs:>8.2f} {unit:3}{ours / theirs:>8.2f}x", flush=True)


_UNPACK = """
import io, json, os, resource, sys, tarfile
from trainwright.cluster.images.layers.unpack import unpack_layer
class Zeros(io.RawIOBase):
    def __init__(self, size):
        member = tarfile.TarInfo("large"); member.size = size
        self.parts = [member.tobuf(), size, bytes(1024)]
    def read(self, count=-1):
        if not self.parts:
            return b""
        part = self.parts[0]
        if isinstance(part, int):
            taken = min(part, count)
            self.parts[0] = part - taken
            if not self.parts[0]:
                del self.parts[0]
            return bytes(taken)
        self.parts[0] = part[count:]
        if not self.parts[0]:
            del self.parts[0]
        return part[:count]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
unpack_layer(Zeros(int(sys.argv[2]) << 30), sys.argv[1])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def _unpack_megabytes(directory: Path) -> float:
    target = directory / "unpacked"
    target.mkdir()
    command = [sys.executable, "-c", _UNPACK, str(target), str(LAYER_GIGABYTES)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    shutil.rmtree(target)
    return float(answer.stdout)


if __name__ == "__main__":
    main()
