"""Finds the replica that failed first, among all those that it took down with it, and says why in plain words.

Statuses give times to the second and the peers of a dead rank die within one, so the last log lines decide too.
"""

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainwright.objects.node_annotations import PYTHON
from trainwright.objects.pods import ContainerStatus, Pod, Terminated
from trainwright.objects.times import parse_time


@dataclass(frozen=True, slots=True)
class Ended:
    """One failed end of one container of a replica, with what it last printed."""

    rank: str
    pod: str
    container: str
    exit_code: int
    reason: str = ""
    message: str = ""
    finished_at: str = ""
    last_lines: tuple[str, ...] = ()
    python: str = ""

    @property
    def how(self) -> str:
        """`exit code 1`, `exit code 137 (SIGKILL)`, `OOMKilled (exit code 137)`."""
        code = f"exit code {self.exit_code}"
        if self.reason not in _USUAL_REASONS:
            return f"{self.reason} ({code})"
        name = signal_name(self.exit_code)
        return f"{code} ({name})" if name else code


_USUAL_REASONS = frozenset({"", "Error", "Completed"})


def failures_of(pod: Pod, rank: str, last_lines: Sequence[str]) -> list[Ended]:
    """The failed ends that a pod's status remembers, of containers that have been started again too."""
    statuses = pod.status.init_container_statuses + pod.status.container_statuses
    ends = [_ended(pod, rank, status, end, last_lines) for status in statuses for end in _bad_ends(status)]
    if not ends and pod.phase == "Failed":
        # Evicted, port taken, deadline: the pod failed and no container says so.
        reason, message = pod.status.reason, pod.status.message
        python = pod.metadata.annotations.get(PYTHON, "")
        return [Ended(rank, pod.name, "", 1, reason, message, "", tuple(last_lines), python)]
    return ends


def first_failure(failures: Iterable[Ended]) -> Ended | None:
    """The failure that the others follow from: the earliest, unless it only complains about a lost peer."""
    known = list(failures)
    if not known:
        return None
    start = min(_moment(failure) for failure in known)
    near = [failure for failure in known if _moment(failure) <= start + _AFTERMATH_SECONDS]
    return min(near, key=lambda failure: (_lost_its_peer(failure), _moment(failure), failure.rank))


def cause(failure: Ended) -> str | None:
    """The fix that the failure asks for, if it is one of the well known."""
    text = "\n".join(failure.last_lines[-40:])
    python = f"the Python of this pod is {failure.python}" if failure.python else "of the pod's own Python"
    if failure.reason == "OOMKilled":
        return "it used more memory than it may: raise resources.limits.memory or lower the batch size"
    if match := _NO_MODULE.search(text):
        return f"Python module {match['module']} is missing: {python}; install it there or name another with --python"
    if match := _NO_FILE.search(text):
        return f"python found no file {match['file']}: paths are relative to the container's workingDir"
    if _NAN.search(text):
        return "the loss is no longer a number: lower the learning rate"
    if failure.exit_code == 127:
        return "its command was not found: check the first word of `command` and the PATH of the image"
    if failure.exit_code == 126:
        return "its command may not be executed: check that the file is executable"
    if failure.exit_code == 137:
        return "it was killed: by a user, or by the kernel because memory ran out"
    if signal_name(failure.exit_code) in {"SIGSEGV", "SIGBUS", "SIGILL", "SIGABRT"}:
        return "the program crashed in native code"
    return None


def signal_name(exit_code: int) -> str | None:
    """The signal that an exit code above 128 stands for."""
    try:
        return signal.Signals(exit_code - 128).name if exit_code > 128 else None
    except ValueError:
        return None


def telling_lines(lines: Sequence[str], limit: int = 10) -> list[str]:
    """The last lines that say something: a traceback is shown from its beginning if it fits."""
    said = [line.rstrip() for line in lines if line.strip()]
    starts = [index for index, line in enumerate(said) if line.lstrip().startswith("Traceback (most recent call last)")]
    if starts and len(said) - starts[-1] <= 2 * limit:
        return said[starts[-1] :]
    return said[-limit:]


_AFTERMATH_SECONDS = 30.0
_NO_MODULE = re.compile(r"No module named '?(?P<module>[\w.]{1,200})'?")
_NO_FILE = re.compile(r"can't open file '(?P<file>[^'\n]{1,500})'")
_NAN = re.compile(r"\bloss\s{0,9}[:=]\s{0,9}nan\b", re.IGNORECASE)
_LOST_PEER = re.compile(
    r"Connection (?:reset|closed|refused) by peer|Connection closed by peer|Broken pipe|socket (?:was|is) closed"
    r"|\bRemote end closed\b|NCCL communicator was aborted|DistNetworkError|recvValue failed|ProcessGroupGloo",
    re.IGNORECASE,
)


def _bad_ends(status: ContainerStatus) -> list[Terminated]:
    ends = (status.last_state.terminated, status.state.terminated)
    return [end for end in ends if end is not None and end.exit_code != 0]


def _ended(pod: Pod, rank: str, status: ContainerStatus, end: Terminated, last_lines: Sequence[str]) -> Ended:
    return Ended(
        rank=rank,
        pod=pod.name,
        container=status.name,
        exit_code=end.exit_code,
        reason=end.reason,
        message=end.message,
        finished_at=end.finished_at or "",
        last_lines=tuple(last_lines),
        python=pod.metadata.annotations.get(PYTHON, ""),
    )


def _moment(failure: Ended) -> float:
    """Seconds; an end without a readable time counts as the latest."""
    try:
        return parse_time(failure.finished_at).timestamp()
    except ValueError:
        return float("inf")


def _lost_its_peer(failure: Ended) -> bool:
    return failure.exit_code == 1 and any(_LOST_PEER.search(line) for line in failure.last_lines[-40:])
