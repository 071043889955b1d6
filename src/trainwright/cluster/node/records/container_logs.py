"""Reads container logs for the log endpoint of the API server: all, the tail, or followed."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainwright.cluster.node.file_events import Changes, FileEvents
from trainwright.cluster.node.records.log_files import (
    LogFiles,
    container_status,
    find_log,
    find_pod,
    run_has_ended,
    seconds,
    split_records,
)
from trainwright.objects import Object
from trainwright.objects.kinds.pod_subresources import LogOptions, LogUnavailable

_MAX_HELD_BYTES = 64 * 1024
_BAR_SECONDS = 2.0
"""Between two lines with the current state of a progress bar in a followed log."""


class ContainerLogs:
    """`directory` is the node's, the same as that of the agent."""

    def __init__(self, directory: Path) -> None:
        self._node = directory
        self._events = FileEvents()

    def read(self, pod: Object, container: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """Raises LogUnavailable before it returns, never while the log is read."""
        uid = str(pod["metadata"]["uid"])
        run = _run_number(find_pod(self._node, uid), pod, container, options)
        files = LogFiles(lambda: find_log(self._node, uid, container, run))
        if not files.exists:
            name = pod["metadata"]["name"]
            raise LogUnavailable(f'the log of container "{container}" in pod "{name}" does not exist')
        directory = find_pod(self._node, uid)
        watched = (directory, directory / "logs" / container) if options.follow else ()
        return _pieces(
            files,
            options,
            ended=lambda: run_has_ended(find_pod(self._node, uid), container, run),
            watching=self._events.watching(*watched),
        )


@dataclass
class _OpenLine:
    """A line that the container has not ended."""

    head: bytes
    """What comes before its text; empty once it was returned."""
    since: float
    text: bytes = b""
    """What is held."""

    def take(self) -> bytes:
        taken, self.head, self.text = self.head + self.text, b"", b""
        return taken


class LogDecoder:
    """From CRI records to the output of the container.

    Partial lines are held until the line ends, so that lines of the two streams are not mixed; very long lines are not.
    `live` returns them at once, except progress bars, which rewrite their line by carriage returns: clients such as
    kubectl show whole lines only, so that every now and then the bar is a line of its own.
    """

    def __init__(self, *, timestamps: bool, since: datetime | None, live: bool = False) -> None:
        self._timestamps = timestamps
        self._since = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode() if since else b""
        self._live = live
        self._open_lines: dict[bytes, _OpenLine] = {}
        """By stream."""

    def feed(self, records: bytes) -> bytes:
        """`records` are whole."""
        return b"".join([self._decode(*record) for record in split_records(records)])

    def finish(self) -> bytes:
        """What is held of lines that have not ended."""
        held, self._open_lines = self._open_lines, {}
        return b"".join(line.take() for line in held.values())

    def _decode(self, stamp: bytes, stream: bytes, tag: bytes, text: bytes) -> bytes:
        if stamp < self._since:
            return b""
        line = self._open_lines.pop(stream, None)
        if line is None:
            line = _OpenLine(stamp + b" " if self._timestamps else b"", seconds(stamp.decode()))
        line.text += text
        if tag == b"F":
            return line.take() + b"\n"
        is_bar = self._live and b"\r" in line.text
        if is_bar and seconds(stamp.decode()) >= line.since + _BAR_SECONDS:
            return line.head + _current_bar(line.text) + b"\n"
        self._open_lines[stream] = line
        holds = is_bar or not self._live
        return b"" if holds and len(line.text) <= _MAX_HELD_BYTES else line.take()


def _current_bar(text: bytes) -> bytes:
    """What a terminal would show of a line that was rewritten."""
    return next((part for part in reversed(text.split(b"\r")) if part), b"")


async def _pieces(
    files: LogFiles, options: LogOptions, *, ended: Callable[[], bool], watching: AbstractContextManager[Changes]
) -> AsyncGenerator[bytes, None]:
    left = options.limit_bytes
    decoder = LogDecoder(timestamps=options.timestamps, since=options.since, live=options.follow)
    try:
        for _ in files.skip_to_last_lines(options.tail_lines) if options.tail_lines is not None else ():
            await asyncio.sleep(0)  # lets other tasks run, here and below: a log may be gigabytes long
        with watching as changes:
            while left is None or left > 0:
                changes.clear()
                # The order matters: a container's last output is in the log before its end is recorded.
                last = not options.follow or ended()
                for piece in _decoded(files, decoder, last=last):
                    part = piece if left is None else piece[:left]
                    if part:
                        yield part
                    if left is not None:
                        left -= len(part)
                        if left <= 0:
                            return
                    await asyncio.sleep(0)
                if last:
                    return
                await changes.wait()
    finally:
        files.close()


def _decoded(files: LogFiles, decoder: LogDecoder, *, last: bool) -> Iterator[bytes]:
    """Some pieces may be empty."""
    for records in files.read():
        yield decoder.feed(records)
    if last:
        yield decoder.finish()


def _run_number(directory: Path, pod: Object, container: str, options: LogOptions) -> int:
    """The run of the container whose log is read: the last one that was started, or the one before it."""
    name = pod["metadata"]["name"]
    status = container_status(directory, container)
    if status is None:
        reason = _waiting_reason(pod, container)
        raise LogUnavailable(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
    latest = int(status["restarts"])
    is_waiting = "waiting" in status["state"]
    if options.previous:
        previous = latest if is_waiting and status["last"] else latest - 1
        if previous < 0 or not status["last"]:
            raise LogUnavailable(f'previous terminated container "{container}" in pod "{name}" not found')
        return previous
    if is_waiting and not status["last"]:
        reason = status["state"]["waiting"]["reason"]
        raise LogUnavailable(f'container "{container}" in pod "{name}" is waiting to start: {reason}')
    return latest


def _waiting_reason(pod: Object, container: str) -> str:
    pod_status = pod.get("status") or {}
    statuses = [*(pod_status.get("initContainerStatuses") or []), *(pod_status.get("containerStatuses") or [])]
    for status in statuses:
        if status["name"] == container and "waiting" in status.get("state", {}):
            return str(status["state"]["waiting"].get("reason", ""))
    return "ContainerCreating"
