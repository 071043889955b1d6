"""What the pods of a job left on this node: the runs of their containers with exact times, their logs, private files.

Commands read it directly from the node's directory, also while the cluster is not running and after clean-up has
deleted the Pod objects.
"""

import codecs
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, cast

from trainwright.cluster.node.records.log_files import LogFiles, find_log, seconds, split_records
from trainwright.cluster.node.records.pod_files import PrivateFile, read_private_files
from trainwright.cluster.node.supervisor.containers import container_status
from trainwright.cluster.node.supervisor.files import read_json, read_pod, read_state
from trainwright.cluster.node.supervisor.pod_json import ContainerJson, ContainerStatus, PodJson, StopJson
from trainwright.objects.kinds.container_runs import ContainerRun


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRecord:
    uid: str
    name: str
    namespace: str
    labels: dict[str, str]
    owner_uid: str
    """The controller owner, such as a job."""
    directory: Path
    runs: tuple[ContainerRun, ...]
    """Init containers first, in the order of the spec; the runs of each container from the first to the last."""
    removed: bool
    """True if the Pod object has been deleted."""

    @property
    def private_files(self) -> tuple[PrivateFile, ...]:
        """The private files of the containers' last runs; read from the disk each time."""
        return read_private_files(self.directory)


class LogLine(NamedTuple):
    at: float
    """When the supervisor read it from the program, in seconds since the epoch."""
    stream: str
    """`stdout` or `stderr`."""
    text: str
    """Without the line end."""
    partial: bool
    """True if the line goes on: the next LogLine of the same stream continues it."""


def whole_lines(pieces: Iterable[LogLine]) -> Iterator[LogLine]:
    """Joins the pieces of lines, by stream; each line has the time of its first piece."""
    begun: dict[str, list[LogLine]] = {}
    for piece in pieces:
        line = begun.setdefault(piece.stream, [])
        line.append(piece)
        if not piece.partial:
            yield _joined(begun.pop(piece.stream))
    for line in begun.values():
        yield _joined(line)


def _joined(pieces: list[LogLine]) -> LogLine:
    return pieces[0]._replace(text="".join(piece.text for piece in pieces), partial=False)


def pod_records(node: Path, owner_uid: str) -> list[PodRecord]:
    """The pods that this owner controls or controlled, sorted by name and creation."""
    found: dict[str, tuple[tuple[str, str], PodRecord]] = {}
    # In this order: a pod that is moved meanwhile may be found twice, but is never missed.
    for folder in ("pods", "removed"):
        for directory in _directories(node / folder):
            pod = read_pod_record(directory)
            owner = pod.get("owner") if pod is not None else None
            if pod is not None and owner and owner["uid"] == owner_uid:
                record = _pod_record(directory, pod, owner_uid, removed=folder == "removed")
                found[pod["uid"]] = (pod["name"], pod.get("createdAt", "")), record
    return [record for _, record in sorted(found.values(), key=itemgetter(0))]


class RunLog:
    """The log of one run in a pod of this node. To be closed after use."""

    def __init__(self, node: Path, run: ContainerRun) -> None:
        self._files = LogFiles(lambda: find_log(node, *run.key), notes_gaps=True)
        self._decoders = {stream: codecs.getincrementaldecoder("utf-8")("replace") for stream in ("stdout", "stderr")}

    def read_new(self) -> list[LogLine]:
        """The lines since the last call, from the beginning of the log at first. Each is returned once.

        A line in brackets stands for those that were rotated away before they were read.
        """
        return [self._line(*record) for piece in self._files.read() for record in split_records(piece)]

    def skip_to_tail(self, size: int) -> None:
        """Skips all but about the last `size` bytes: a log may be 50 MiB long."""
        self._files.skip_to_tail(size)

    def close(self) -> None:
        self._files.close()

    def _line(self, stamp: bytes, stream: bytes, tag: bytes, text: bytes) -> LogLine:
        partial, name = tag == b"P", stream.decode()
        # A character may be split between two partial lines.
        return LogLine(seconds(stamp.decode()), name, self._decoders[name].decode(text, final=not partial), partial)


def _directories(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []


@lru_cache(maxsize=4096)
def _decode_pod(directory: Path, inode: int, modified: int) -> PodJson | None:  # noqa: ARG001 (they identify the file)
    """Without what only the supervisor needs: variables and arguments may be megabytes, and secret."""
    pod = read_pod(str(directory))
    if pod is not None:
        pod["initContainers"], pod["containers"] = map(_described, (pod["initContainers"], pod["containers"]))
    return pod


def _described(containers: list[ContainerJson]) -> list[ContainerJson]:
    kept = ("name", "cwd", "image", "missingImage")
    found = ({key: value for key, value in container.items() if key in kept} for container in containers)
    return [cast("ContainerJson", container) for container in found]


def read_pod_record(directory: Path) -> PodJson | None:
    try:
        found = (directory / "pod.json").stat()
    except OSError:
        return None
    return _decode_pod(directory, found.st_ino, found.st_mtime_ns)


def _pod_record(directory: Path, pod: PodJson, owner_uid: str, *, removed: bool) -> PodRecord:
    state = read_state(str(directory))
    stopped_at = _stopped_at(directory)
    runs: list[ContainerRun] = []
    for containers, recorded, init in (
        (pod["initContainers"], state["initContainers"] if state else (), True),
        (pod["containers"], state["containers"] if state else (), False),
    ):
        statuses = {status["name"]: status for status in recorded}
        for container in containers:
            name = container["name"]
            found = _recorded_runs(statuses.get(name))
            # A log exists before its run is recorded.
            for number in _logged_runs(directory / "logs" / name) - found.keys():
                found[number] = ContainerRun(number=number)
            missing = container.get("image", "") if container.get("missingImage") else ""
            runs += [
                replace(
                    run,
                    namespace=pod["namespace"],
                    pod=pod["name"],
                    pod_uid=pod["uid"],
                    owner_uid=owner_uid,
                    container=name,
                    init=init,
                    exact=True,
                    directory=container.get("cwd", ""),
                    missing_image=missing,
                    stopped=run.finished_at is not None and run.finished_at >= stopped_at,
                )
                for _, run in sorted(found.items())
            ]
    return PodRecord(
        uid=pod["uid"],
        name=pod["name"],
        namespace=pod["namespace"],
        labels=pod.get("labels", {}),
        owner_uid=owner_uid,
        directory=directory,
        runs=tuple(runs),
        removed=removed,
    )


def _stopped_at(directory: Path) -> float:
    """When the user or the operator asked the pod to end; infinity if neither did."""
    file = directory / "stop.json"
    try:
        request: StopJson = read_json(str(file))
        return math.inf if request.get("reason") or "shutdown" in request else file.stat().st_mtime
    except (OSError, ValueError):
        return math.inf


def _recorded_runs(status: ContainerStatus | None) -> dict[int, ContainerRun]:
    """The runs of one container by their numbers, without what is known of the pod."""
    if status is None:
        return {}
    runs = {
        run["number"]: ContainerRun(
            number=run["number"],
            started_at=seconds(run["startedAt"]),
            finished_at=seconds(run["finishedAt"]),
            exit_code=run["exitCode"],
            reason=run["reason"],
            message=run.get("message", ""),
        )
        for run in container_status.finished_runs(status)
    }
    if running := status["state"].get("running"):
        number, started_at = status["restarts"], seconds(running["startedAt"])
        runs[number] = ContainerRun(number=number, started_at=started_at)
    return runs


def _logged_runs(logs: Path) -> set[int]:
    try:
        return {int(path.name.partition(".")[0]) for path in logs.iterdir()}
    except FileNotFoundError:
        return set()
