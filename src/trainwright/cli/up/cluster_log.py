"""The log file of a detached cluster: its process writes there as to a terminal, and keeps the file from growing."""

import asyncio
import os
import sys
from pathlib import Path

MAX_BYTES = 16 * 2**20
_CHECK_SECONDS = 60.0


async def rotate_for_ever(log: Path) -> None:
    while True:
        await asyncio.sleep(_CHECK_SECONDS)
        rotate(log)


def rotate(log: Path, *, max_bytes: int = MAX_BYTES) -> bool:
    """If this process writes to the file and it is too long, goes on in a new one and keeps the old one as `.1`."""
    try:
        output = os.fstat(sys.stdout.fileno())
        if output.st_size <= max_bytes or not os.path.samestat(output, log.stat()):
            return False
        log.replace(log.with_name(f"{log.name}.1"))
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:  # the log is no reason to stop
        return False
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        os.dup2(descriptor, stream.fileno())
    os.close(descriptor)
    return True
