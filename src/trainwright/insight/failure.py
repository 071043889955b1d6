"""Finds the rank that failed first, among peers that failed because of it, and the probable cause.

Pod statuses have times in whole seconds, and the peers of a failed rank often fail in the same second. Therefore the
last log lines are compared too.
"""

import re
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainwright.objects.node_annotations import PYTHON
from trainwright.objects.pods import ContainerStatus, Pod, Terminated
from trainwright.objects.times import parse_time


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed run of a container, with the last lines of its log."""

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
    def description(self) -> str:
        """`exit code 1`, `exit code 137 (SIGKILL)`, `OOMKilled (exit code 137)`."""
        code = f"exit code {self.exit_code}"
        if self.reason not in _GENERIC_REASONS:
            return f"{self.reason} ({code})"
        name = signal_name(self.exit_code)
        return f"{code} ({name})" if name else code


_GENERIC_REASONS = frozenset({"", "Error", "Completed"})


def failures_of(pod: Pod, rank: str, last_lines: Sequence[str]) -> list[Failure]:
    """The failed runs of containers in a pod's status, including the previous run of restarted containers."""
    statuses = pod.status.init_container_statuses + pod.status.container_statuses
    failures = [_failure(pod, rank, status, run, last_lines) for status in statuses for run in _failed_runs(status)]
    if not failures and pod.phase == "Failed":
        # The pod failed without a failed container: evicted, deadline exceeded, port taken.
        reason, message = pod.status.reason, pod.status.message
        python = pod.metadata.annotations.get(PYTHON, "")
        return [Failure(rank, pod.name, "", 1, reason, message, "", tuple(last_lines), python)]
    return failures


def first_failure(failures: Iterable[Failure]) -> Failure | None:
    """The failure that caused the others: the earliest one that does not just report a lost peer."""
    known = list(failures)
    if not known:
        return None
    start = min(_seconds(failure) for failure in known)
    near = [failure for failure in known if _seconds(failure) <= start + _SAME_FAILURE_SECONDS]
    return min(near, key=lambda failure: (_reports_lost_peer(failure), _seconds(failure), failure.rank))


def probable_cause(failure: Failure) -> str | None:
    """Cause and fix of a well-known failure."""
    text = "\n".join(failure.last_lines[-40:])
    python = f"{failure.python}, the Python of this pod" if failure.python else "the Python of this pod"
    if failure.reason == "OOMKilled":
        return "it exceeded its memory limit: raise resources.limits.memory or lower the batch size"
    if match := _NO_MODULE.search(text):
        return f"module {match['module']} is not installed in {python}: install it or choose another with --python"
    if match := _NO_FILE.search(text):
        return f"file {match['file']} was not found: relative paths start in the container's workingDir"
    if _NAN.search(text):
        return "the loss became NaN: lower the learning rate"
    if _PORT_IN_USE.search(text):
        return "another program uses its port: stop that program, or declare another port in the manifest"
    if failure.exit_code == 127:
        return "the command was not found: check the first word of `command` and the PATH of the image"
    if failure.exit_code == 126:
        return "the command could not be executed: check that the file is executable"
    if failure.exit_code == 137 or _PADDLE_KILLED.search(text):
        return "it was killed, by a user or by the kernel because memory ran out"
    if _reports_lost_peer(failure):
        return "it lost the connection to another pod: see the logs of the other pods"
    if signal_name(failure.exit_code) in _CRASHES and not _first_exception(failure.last_lines):
        return "the program crashed in native code"
    return None


def signal_name(exit_code: int) -> str | None:
    """The signal of an exit code above 128."""
    try:
        return signal.Signals(exit_code - 128).name if exit_code > 128 else None
    except ValueError:
        return None


def relevant_lines(lines: Sequence[str], limit: int = 10) -> list[str]:
    """The last lines, without blank ones and native stack frames; a traceback from its beginning if not too long."""
    kept = [line.rstrip() for line in lines if line.strip() and not _NATIVE_FRAME.match(line)]
    starts = [index for index, line in enumerate(kept) if line.lstrip().startswith("Traceback (most recent call last)")]
    if starts and len(kept) - starts[-1] <= 2 * limit:
        return kept[starts[-1] :]
    return kept[-limit:]


_SAME_FAILURE_SECONDS = 30.0
_NO_MODULE = re.compile(r"No module named '?(?P<module>[\w.]{1,200})'?")
_NO_FILE = re.compile(r"can't open file '(?P<file>[^'\n]{1,500})'")
_NAN = re.compile(r"\bloss\s{0,9}[:=]\s{0,9}nan\b", re.IGNORECASE)
_PADDLE_KILLED = re.compile(r"^Container rank \d{1,6} status failed .{0,2000} code -9 log ", re.MULTILINE)
"""paddle.distributed.launch ends with 247 if the program was killed."""
_PORT_IN_USE = re.compile(r"Address already in use|EADDRINUSE", re.IGNORECASE)
_LOST_PEER = re.compile(
    r"Connection (?:reset|closed|refused) by peer|Connection closed by peer|Broken pipe|socket (?:was|is) closed"
    r"|\bRemote end closed\b|NCCL communicator was aborted|DistNetworkError|recvValue failed|ProcessGroupGloo"
    # gRPC, in TensorFlow and JAX
    r"|\bSocket closed\b|failed to connect to all addresses|GRPC error information from remote target"
    r"|Collective ops is aborted by|CoordinationServiceError|JAX distributed service detected fatal errors"
    # XGBoost
    r"|The other end is likely closed|Socket error\. Connection (?:reset|refused)"
    # gloo, in PaddlePaddle
    r"|gloo/transport/tcp/pair\.cc:\d{1,6}\] TIMEOUT",
    re.IGNORECASE,
)
_ERROR_CODES = frozenset({1, 128 + signal.SIGABRT})
"""How programs end after an error: Python with 1, and JAX and TensorFlow by abort()."""
_CRASHES = frozenset({"SIGSEGV", "SIGBUS", "SIGILL", "SIGABRT"})
_NATIVE_FRAME = re.compile(r"\s{0,9}(?:@\s{1,9}0x[0-9a-f]|\[bt\] \(|\*\*\* Check failure stack trace)")
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_PREFIX = re.compile(r"\[rank\d{1,6}\]: ?")
"""torch writes it before every line of a traceback."""
_NATIVE_LOG = re.compile(r"[EFIW]\d{4} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


def _failed_runs(status: ContainerStatus) -> list[Terminated]:
    runs = (status.last_state.terminated, status.state.terminated)
    return [run for run in runs if run is not None and run.exit_code != 0]


def _failure(pod: Pod, rank: str, status: ContainerStatus, run: Terminated, last_lines: Sequence[str]) -> Failure:
    return Failure(
        rank=rank,
        pod=pod.name,
        container=status.name,
        exit_code=run.exit_code,
        reason=run.reason,
        message=run.message,
        finished_at=run.finished_at or "",
        last_lines=tuple(last_lines),
        python=pod.metadata.annotations.get(PYTHON, ""),
    )


def _seconds(failure: Failure) -> float:
    """When it failed; infinity if the status has no readable time."""
    try:
        return parse_time(failure.finished_at).timestamp()
    except ValueError:
        return float("inf")


def _reports_lost_peer(failure: Failure) -> bool:
    """Whether the program failed because a peer did. If it raised an exception, only that one counts: while a program
    ends, frameworks print further errors about connections, also in the program that failed first."""
    if failure.exit_code not in _ERROR_CODES:
        return False
    lines = _first_exception(failure.last_lines) or failure.last_lines[-40:]
    return any(_LOST_PEER.search(line) for line in lines)


def _first_exception(lines: Sequence[str]) -> list[str]:
    """The text of the exception that ended the program; of a chain of exceptions the first one; empty if none did."""
    plain = [_PREFIX.sub("", line) for line in lines]
    starts = [index for index, line in enumerate(plain) if line.startswith(_TRACEBACK)]
    if not starts:
        return []
    start = starts.pop()
    while starts and any(line.startswith(_CHAINED) for line in plain[starts[-1] : start]):
        start = starts.pop()
    text: list[str] = []
    for line in plain[start + 1 :]:
        if line.startswith((_TRACEBACK, *_CHAINED)) or _NATIVE_LOG.match(line):
            break
        if text or (line.strip() and not line[0].isspace()):
            text.append(line)
    return text
