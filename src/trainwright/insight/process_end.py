"""What is known about the end of a process: its exit code, exception and last lines; and the form of a conclusion."""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from trainwright.insight.log_exceptions import RaisedException
from trainwright.insight.log_progress import read_line
from trainwright.objects.kinds.container_runs import ContainerRun, Line

CHECKED_LINES = 500


class Cause(StrEnum):
    """The class of a cause. Users read it in `status.failure.cause`, so the values are part of the API."""

    EXCEPTION = "exception"
    EXIT_CODE = "exit-code"
    MISSING_MODULE = "missing-module"
    MISSING_FILE = "missing-file"
    COMMAND_NOT_FOUND = "command-not-found"
    SYNTAX_ERROR = "syntax-error"
    BAD_ARGUMENT = "bad-argument"
    DISK_FULL = "disk-full"
    PERMISSION_DENIED = "permission-denied"
    ACCESS_DENIED = "access-denied"
    CHECKPOINT = "checkpoint"
    OUT_OF_MEMORY = "out-of-memory"
    NO_GPU = "no-gpu"
    MISSING_BACKEND = "missing-backend"
    NAN = "nan"
    PORT_IN_USE = "port-in-use"
    NATIVE_CRASH = "native-crash"
    KILLED = "killed"
    TERMINATED = "terminated"
    EARLY_EXIT = "early-exit"
    UNREACHABLE_PEER = "unreachable-peer"
    TIMEOUT = "timeout"
    LOST_PEER = "lost-peer"
    POD_FAILED = "pod-failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Explanation:
    cause: Cause
    summary: str
    """The cause in one line."""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class ProcessEnd:
    """What is known about the end of a process."""

    run: ContainerRun
    """The run of the container that it belongs to."""
    exit_code: int | None
    reason: str = ""
    exception: RaisedException | None = None
    """The exception that ended it."""
    lines: Sequence[Line] = ()
    """The end of its log."""


def describe_end(exit_code: int | None, reason: str = "") -> str:
    """`exit code 1`, `exit code 137 (SIGKILL)`, `OOMKilled (exit code 137)`."""
    if exit_code is None:
        return reason or "still running"
    code = f"exit code {exit_code}"
    if reason not in _GENERIC_REASONS:
        return f"{reason} ({code})"
    name = signal_name(exit_code)
    return f"{code} ({name})" if name else code


def signal_name(exit_code: int | None) -> str | None:
    """The signal of an exit code above 128."""
    try:
        return signal.Signals(exit_code - 128).name if exit_code is not None and exit_code > 128 else None
    except ValueError:
        return None


_GENERIC_REASONS = frozenset({"", "Error", "Completed", "Unknown"})


def last_lines(lines: Sequence[Line], limit: int) -> list[str]:
    """The last lines without blank ones and without native stack frames, which are many."""
    kept = [line.text.rstrip() for line in lines[-CHECKED_LINES:] if not _NATIVE_FRAME.match(line.text)]
    return kept[-limit:]


def tail(lines: Sequence[Line]) -> str:
    return "\n".join(last_lines(lines, 40))


_NATIVE_FRAME = re.compile(r"\s{0,9}(?:frame #\d{1,4}: |@\s{1,9}0x[0-9a-f]|\[bt\] \(|#\d{1,4} +0x[0-9a-f])|\s{0,20}$")


def is_progress(text: str) -> bool:
    reading = read_line(text)
    return reading is not None and (reading.step is not None or reading.epoch is not None)
