"""The termination message of a container: what it wrote to its terminationMessagePath, else the end of its log.

Standard library only.
"""

from __future__ import annotations

import os

MAX_BYTES = 4096
"""The longest message in the file."""
MAX_LOG_BYTES = 2048
MAX_LOG_LINES = 80

FALLBACK_TO_LOGS = "FallbackToLogsOnError"

_TAIL = 256 * 1024


def read_message(path: str | None, *, policy: str, failed: bool, log: str) -> str:
    """`path` is the file on the host, `log` the current file of the container's log."""
    message = _tail(path, MAX_BYTES) if path else b""
    if not message and failed and policy == FALLBACK_TO_LOGS:
        message = end_of_log(_tail(log, _TAIL))
    return message.decode(errors="replace")


def end_of_log(records: bytes) -> bytes:
    """The last lines of a log in CRI format, which may begin within a record."""
    lines: list[bytes] = [b""]
    for record in records.split(b"\n"):
        fields = record.split(b" ", 3)
        if len(fields) == 4 and fields[2] in {b"F", b"P"}:
            lines[-1] += fields[3]
            if fields[2] == b"F":
                lines[-1] += b"\n"
                lines.append(b"")
    kept = lines[:-1] if not lines[-1] else lines
    return b"".join(kept[-MAX_LOG_LINES:])[-MAX_LOG_BYTES:]


def _tail(path: str, size: int) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - size))
            return file.read(size)
    except OSError:
        return b""
