"""Every line that programs write is read exactly once and in order, whatever happens to their pods and to the cluster.

Programs write the same text to their output and to a file of their own. Jobs are restarted in place, recreated and
cleaned up, their logs rotate, and the cluster is stopped, killed and started again. A reader follows all of it through
the records of the node.
"""

import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cluster.embedded_cluster import UpCommand, up_command
from tests.support.thoroughness import THOROUGH
from trainwright.api.kinds import PYTORCH
from trainwright.cluster.facade import DataDir, PodRecord, RunLog, pod_records
from trainwright.cluster.node.records.pod_records import LogLine
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.kinds.container_runs import ContainerRun, RunKey
from trainwright.objects.node_annotations import DIRECTORY, HOST_IMAGE, LOG_MAX_SIZE

CLUSTERS, LIVES = (5, 10) if THOROUGH else (1, 4)
"""How many clusters there are, and how many jobs live in each of them."""
SEED = int(os.environ.get("LOG_LIVES_SEED", "1"))
PATIENCE = 90.0

LIFE = r"""
import os, random, signal, sys, time

directory, failures, code, rotates = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "rotates"
name = os.environ["HOSTNAME"]
attempt = sum(entry.startswith(f"{name}+") for entry in os.listdir(directory)) // 2
run = f"{name}+{attempt}"
chance = random.Random(run)
stopping = False

def stop(*_):
    global stopping
    stopping = True

signal.signal(signal.SIGTERM, stop)
copies = [os.open(f"{directory}/{run}.{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL) for number in (1, 2)]

def write(stream, text):
    for descriptor in (copies[stream - 1], stream):
        data = text.encode()
        while data:
            data = data[os.write(descriptor, data):]

for stream in (1, 2):
    write(stream, f"{run}\n")
for step in range(chance.randint(2, 12)):
    stream = chance.choice((1, 1, 2))
    match chance.choice(("lines", "lines", "lines", "burst", "long", "bar", "unfinished")):
        case "lines":
            for number in range(chance.randint(1, 9)):
                write(stream, f"step {step} line {number}\n")
        case "burst":
            write(stream, "".join(f"step {step} line {number}\n" for number in range(chance.randint(1, 150))))
        case "long":
            write(stream, "é" * chance.randint(1, 1000 if rotates else 20_000) + "\n")
        case "bar":
            for percent in range(0, 100, 20):
                write(2, f"\r{percent}%|" + "█" * percent)
                time.sleep(chance.uniform(0, 0.15))
            write(2, "\n")
        case "unfinished":
            write(stream, f"step {step} ")
    time.sleep(chance.uniform(0.05, 0.2) if rotates else chance.choice((0, 0, chance.uniform(0, 0.3))))
    if stopping:
        break
write(1, "the end")
os._exit(code if stopping or attempt < failures else 0)
"""


def job(name: str, chance: random.Random, directory: Path) -> Object:
    """A job with a random life."""
    policy = chance.choice(["Never", "OnFailure", "ExitCode"])
    rotates = chance.random() < 0.4

    def replica(count: int) -> Object:
        # A second restart in place would wait for ten seconds.
        failures = {"Never": 0, "OnFailure": chance.randint(0, 1), "ExitCode": chance.randint(0, 2)}[policy]
        failures = 99 if policy != "OnFailure" and chance.random() < 0.2 else failures
        # The operator replaces a pod with restartPolicy ExitCode only after a code that it takes as a disturbance.
        code = 130 if policy == "ExitCode" and failures != 99 else 1
        arguments = [str(directory), str(failures), str(code), "rotates" if rotates else ""]
        command = [sys.executable, "-I", "-S", "-c", LIFE, *arguments]
        container = {"name": PYTORCH.container, "image": HOST_IMAGE, "command": command}
        return {"replicas": count, "restartPolicy": policy, "template": {"spec": {"containers": [container]}}}

    replicas = {"Master": replica(1)}
    if workers := chance.randint(0, 2):
        replicas["Worker"] = replica(workers)
    annotations = {DIRECTORY: str(directory), **({LOG_MAX_SIZE: "8000"} if rotates else {})}
    return {
        "apiVersion": PYTORCH.resource.api_version,
        "kind": PYTORCH.name,
        "metadata": {"name": name, "namespace": "default", "annotations": annotations},
        "spec": {
            "runPolicy": {"cleanPodPolicy": chance.choice(["None", "Running", "All"]), "backoffLimit": 6},
            PYTORCH.replicas_field: replicas,
        },
    }


class Reader(threading.Thread):
    """Reads the logs of all runs of the jobs all the time."""

    def __init__(self, data: DataDir) -> None:
        super().__init__()
        self._data = data
        self.jobs: list[str] = []
        self._logs: dict[RunKey, RunLog] = {}
        self.lines: dict[RunKey, list[LogLine]] = defaultdict(list)
        self._ended = threading.Event()

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        while not self._ended.wait(0.02):
            self._read()
        self._read()
        for log in self._logs.values():
            log.close()

    def _read(self) -> None:
        for record, run in runs_of(self._data, self.jobs):
            if run.key not in self._logs:
                self._logs[run.key] = RunLog(record.directory.parents[1], run)
            self.lines[run.key] += self._logs[run.key].read_new()


@contextmanager
def reading(data: DataDir) -> Iterator[Reader]:
    reader = Reader(data)
    reader.start()
    try:
        yield reader
    finally:
        reader.stop()


def runs_of(data: DataDir, jobs: list[str]) -> Iterator[tuple[PodRecord, ContainerRun]]:
    for uid in list(jobs):
        for record in pod_records(data, uid):
            for run in record.runs:
                if not run.init:  # those of the operator, which write no copy
                    yield record, run


def read_log(record: PodRecord, run: ContainerRun) -> list[LogLine]:
    log = RunLog(record.directory.parents[1], run)
    lines = log.read_new()
    log.close()
    return lines


def is_rotated(record: PodRecord, run: ContainerRun) -> bool:
    return (record.directory / "logs" / run.container / f"{run.number}.log.4").exists()


def text_of(lines: list[LogLine], stream: str) -> str:
    return "".join(one.text + ("" if one.partial else "\n") for one in lines if one.stream == stream)


def down(up: UpCommand, *flags: str) -> None:
    command = [sys.executable, "-m", "trainwright", "down", "--data-dir", str(up.data.path), *flags]
    subprocess.run(command, check=True, env=up.environment, capture_output=True)
    up.process.wait()


ENDS: dict[str, Callable[[UpCommand], object]] = {
    "kill -9": UpCommand.kill,
    "down": down,
    "down --keep-pods": lambda up: down(up, "--keep-pods"),
}
"""How a cluster ends while its jobs run."""


def live(directory: Path, jobs: list[Object], chance: random.Random, reader: Reader) -> None:
    """Starts some of the jobs, ends the cluster in some way, and so on until it has ended in every way."""
    ends = list(ENDS)
    chance.shuffle(ends)
    share = -(-len(jobs) // len(ends))
    for number, end in enumerate(ends):
        with up_command(directory) as up:
            with SyncClient(up.config) as client:
                for one in jobs[number * share : (number + 1) * share]:
                    reader.jobs.append(client.create(PYTORCH.resource, one)["metadata"]["uid"])
            time.sleep(chance.uniform(0.2, 1.5))  # the moment of the end is what is tried out
            ENDS[end](up)


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def list_jobs(client: SyncClient) -> list[Object]:
    return list(client.list(PYTORCH.resource, namespace="default").items)


def is_finished(one: Object) -> bool:
    conditions = (one.get("status") or {}).get("conditions") or []
    return any(each["type"] in {"Succeeded", "Failed"} and each["status"] == "True" for each in conditions)


def compare(lines: dict[RunKey, list[LogLine]], written: dict[str, dict[str, str]]) -> None:
    shown: set[str] = set()
    for read in lines.values():
        texts = {stream: text_of(read, stream) for stream in ("stdout", "stderr")}
        if not any(texts.values()):
            continue  # stopped before it had written anything
        name = texts["stdout"].partition("\n")[0]
        assert name not in shown, f"{name} was read twice"
        assert texts == written[name]
        shown.add(name)
    assert shown == written.keys()


def compare_kept_logs(data: DataDir, reader: Reader) -> None:
    """A reader that comes later finds the same, unless rotation has removed the beginning."""
    for record, run in runs_of(data, reader.jobs):
        kept, followed = read_log(record, run), reader.lines[run.key]
        assert kept == followed[len(followed) - len(kept) if is_rotated(record, run) else 0 :]


def read_copies(directory: Path) -> dict[str, dict[str, str]]:
    """By run and stream, what the programs wrote to their own files."""
    written: dict[str, dict[str, str]] = defaultdict(dict)
    for path in directory.iterdir():
        run, _, number = path.name.rpartition(".")
        written[run]["stdout" if number == "1" else "stderr"] = path.read_bytes().decode()
    return written


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(CLUSTERS))
def test_every_line_is_read_once_and_in_order(tmp_path: Path, number: int) -> None:
    chance = random.Random(f"{SEED}-{number}")
    (tmp_path / "work").mkdir()
    data = DataDir(tmp_path / "data")

    jobs = [job(f"life-{number}-{life}", chance, tmp_path / "work") for life in range(LIVES)]

    with reading(data) as reader:
        live(tmp_path, jobs, chance, reader)
        with up_command(tmp_path) as up, SyncClient(up.config) as client:
            until(lambda: all(is_finished(one) for one in list_jobs(client)))
            # The pods that clean-up leaves end too.
            until(lambda: all(run.finished_at for _, run in runs_of(data, reader.jobs)))
            reader.stop()

            written = read_copies(tmp_path / "work")
            assert len(written) >= LIVES
            compare(reader.lines, written)
            compare_kept_logs(data, reader)

            # Nothing is left of deleted jobs.
            for one in jobs:
                client.delete(PYTORCH.resource, one["metadata"]["name"], namespace="default")
            until(lambda: not any(path for folder in ("pods", "removed") for path in (data.node / folder).iterdir()))
