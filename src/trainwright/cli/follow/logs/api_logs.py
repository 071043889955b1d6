"""The logs of jobs on any cluster, streamed from its API server: one stream per run of a container."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable
from datetime import datetime

from trainwright.api.labels import rank_of
from trainwright.cli.follow.logs.log_source import LogBatch, LogRecord
from trainwright.cli.follow.state.job_state import JobState, Run
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.objects.kinds.pods import ContainerStatus, Pod
from trainwright.objects.times import parse_time

_PREVIOUS_RUN_SECONDS = 5.0


class ApiLogs:
    """`warn` prints a warning for the user."""

    def __init__(self, client: Client, *, warn: Callable[[str], None]) -> None:
        self._client = client
        self._warn = warn
        self._streams: dict[Run, asyncio.Task[None]] = {}
        self._batch = LogBatch()

    def pod_changed(self, state: JobState, pod: Pod) -> None:
        """Starts one stream per run, once the container has started."""
        rank = rank_of(pod.metadata.labels, pod.name)
        for init, statuses in ((True, pod.status.init_container_statuses), (False, pod.status.container_statuses)):
            for status in statuses:
                latest = Run(state.uid, pod.metadata.uid, rank, status.name, init, status.restart_count)
                if latest.number and status.last_state.terminated and _has_started(status):
                    # It may have ended between two reports: the cluster still has the log of the run before this one.
                    self._stream(latest._replace(number=latest.number - 1), state, pod, previous=True)
                if _has_started(status) or status.last_state.terminated:
                    self._stream(latest, state, pod, previous=False)

    def read(self) -> LogBatch:
        batch, self._batch = self._batch, LogBatch()
        return batch

    def is_complete(self, state: JobState) -> bool:
        left = set(state.leftover_pods())
        streams = ((run, task) for run, task in self._streams.items() if run.job_uid == state.uid)
        return all(task.done() for run, task in streams if run.rank not in left)

    async def close(self) -> None:
        for task in self._streams.values():
            task.cancel()
        await asyncio.gather(*self._streams.values(), return_exceptions=True)

    def _stream(self, run: Run, state: JobState, pod: Pod, *, previous: bool) -> None:
        if run not in self._streams:
            before = self._streams.get(run._replace(number=run.number - 1))
            stream = self._copy(run, pod.name, state.namespace, before, previous=previous)
            self._streams[run] = asyncio.create_task(stream)

    async def _copy(
        self, run: Run, pod: str, namespace: str, before: "asyncio.Task[None] | None", *, previous: bool
    ) -> None:
        """Reads a log to its end, and reconnects whenever the connection breaks."""
        if before:
            await asyncio.wait({before}, timeout=_PREVIOUS_RUN_SECONDS)
        position = LogPosition()
        for pause in itertools.chain((0.1, 0.2, 0.5, 1.0), itertools.repeat(2.0)):
            position.resume()
            try:
                async for raw in self._client.logs(
                    pod,
                    namespace=namespace,
                    container=run.container,
                    follow=not previous,
                    previous=previous,
                    timestamps=True,
                    since_time=position.since_time,
                ):
                    timestamp, line = _split_timestamp(raw)
                    if position.is_new(timestamp):
                        self._batch.records.append(LogRecord(time.time(), run, "", line, False))
                break
            except Unreachable:
                await asyncio.sleep(pause)
            except ApiError as error:
                # The pod was deleted, or its node cannot provide the log: the command continues.
                if error.code != 404 and not previous:
                    self._warn(f"failed to get the log of pod {pod}: {error.message}")
                break
        self._batch.ended.append(run)


class LogPosition:
    """How far a log has been read, so that after a broken connection no line is missed or printed twice.

    Several lines may have the same timestamp; those with the last one are counted.
    """

    def __init__(self) -> None:
        self._last = ""
        self._seen = 0
        self._skip = 0

    @property
    def since_time(self) -> datetime | None:
        """Where to continue; None: at the beginning."""
        with contextlib.suppress(ValueError):
            return parse_time(self._last) if self._last else None
        return None

    def resume(self) -> None:
        """To be called before a new stream, which begins with the lines of the last timestamp or older ones."""
        self._skip = self._seen

    def is_new(self, timestamp: str) -> bool:
        if timestamp < self._last:
            return False
        if timestamp > self._last:
            self._last, self._seen, self._skip = timestamp, 1, 0
            return True
        if self._skip:
            self._skip -= 1
            return False
        self._seen += 1
        return True


def _has_started(status: ContainerStatus) -> bool:
    return bool(status.state.running or status.state.terminated)


def _split_timestamp(raw: bytes) -> tuple[str, str]:
    """Timestamp and text of a line of a log that was requested with timestamps."""
    timestamp, _, line = raw.decode(errors="replace").rstrip("\n").partition(" ")
    return timestamp, line
