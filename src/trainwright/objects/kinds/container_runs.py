"""One run of a container, from its start to its end: as the status of its pod shows it, or as its node recorded it."""

from dataclasses import dataclass
from typing import NamedTuple

from trainwright.objects.kinds.pods import ContainerStatus, Pod, Terminated
from trainwright.objects.node_annotations import PYTHON
from trainwright.objects.times import unix_seconds

RunKey = tuple[str, str, int]
"""The uid of the pod, the container, and the number of its run."""


class Line(NamedTuple):
    """A line of a log, with the time in seconds since the epoch at which it was written, if that is known."""

    text: str
    at: float | None = None


def timed_line(raw: bytes) -> Line:
    """A line of a log that was requested from the API with timestamps."""
    stamp, _, text = raw.decode(errors="replace").rstrip("\n").partition(" ")
    return Line(text, unix_seconds(stamp))


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRun:
    """Times are seconds since the epoch."""

    namespace: str = ""
    pod: str = ""
    pod_uid: str = ""
    owner_uid: str = ""
    """The controller of the pod, such as a job."""
    rank: str = ""
    """`worker-0`; empty where the job of the pod is not known."""
    container: str = ""
    """Empty if the pod failed without a container: evicted, port taken."""
    init: bool = False
    number: int = 0
    """0 is the first run."""
    previous: bool = False
    """True if the status of the pod shows a later run: the API calls the log of this one the previous one."""
    started_at: float | None = None
    finished_at: float | None = None
    """None while it runs."""
    exact: bool = False
    """False if times are whole seconds, as in the status of a pod."""
    exit_code: int | None = None
    """None while it runs."""
    reason: str = ""
    message: str = ""
    stopped: bool = False
    """It ended after its pod had been asked to end: deleted, or the job was suspended."""
    directory: str = ""
    """The working directory of the container on this machine; empty if it is unknown."""
    missing_image: str = ""
    """The image of the container if this machine did not have it, so that the container had the machine's files."""
    python: str = ""
    """The Python of the pod, for messages."""
    installer: str = ""
    """The command that installs packages for it, such as `pip install`."""
    lines: tuple[Line, ...] = ()
    """The end of its log, where it was read."""

    @property
    def key(self) -> RunKey:
        return self.pod_uid, self.container, self.number

    @property
    def seconds(self) -> float | None:
        """How long it ran; None if that is unknown."""
        return None if self.started_at is None or self.finished_at is None else self.finished_at - self.started_at


def runs_in_status(pod: Pod, rank: str) -> list[ContainerRun]:
    """The runs that the status shows: the last one of each container, and the one before it. Without their logs."""
    status = pod.status
    return [
        _run(pod, rank, container, number, ended, init=init)
        for init, containers in ((True, status.init_container_statuses), (False, status.container_statuses))
        for container in containers
        for number, ended in _numbered_runs(container)
    ]


def _run(
    pod: Pod, rank: str, status: ContainerStatus, number: int, ended: Terminated | None, *, init: bool
) -> ContainerRun:
    metadata, running = pod.metadata, status.state.running
    started_at = ended.started_at if ended else running.started_at if running else None
    return ContainerRun(
        namespace=metadata.namespace,
        pod=pod.name,
        pod_uid=metadata.uid,
        owner_uid=metadata.controller.uid if metadata.controller else "",
        rank=rank,
        container=status.name,
        init=init,
        number=number,
        previous=number < status.restart_count,
        started_at=unix_seconds(started_at),
        finished_at=unix_seconds(ended.finished_at) if ended else None,
        exit_code=ended.exit_code if ended else None,
        reason=ended.reason if ended else "",
        message=ended.message if ended else "",
        python=metadata.annotations.get(PYTHON, ""),
    )


def _numbered_runs(status: ContainerStatus) -> list[tuple[int, Terminated | None]]:
    """Numbered from 0; None is a run that has not ended. While a container waits for its next start, its last run is
    the latest one."""
    has_started = status.state.terminated or status.state.running
    runs: list[tuple[int, Terminated | None]] = []
    if before := status.last_state.terminated:
        runs.append((status.restart_count - (1 if has_started else 0), before))
    if has_started:
        runs.append((status.restart_count, status.state.terminated))
    return [(number, run) for number, run in runs if number >= 0]
