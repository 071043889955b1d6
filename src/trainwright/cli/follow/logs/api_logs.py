"""The logs of jobs on any cluster, streamed from its API server: one stream per run of a container."""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable
from datetime import datetime

from trainwright.api.labels import rank_of
from trainwright.cli.follow.logs.log_source import LogBatch, LogRecord
from trainwright.cli.follow.state.job_state import JobState
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.objects.kinds.container_runs import ContainerRun, RunKey, runs_in_status
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.times import parse_time

_PREVIOUS_RUN_SECONDS = 5.0


class ApiLogs:
    """`warn` prints a warning for the user."""

    def __init__(self, client: Client, *, warn: Callable[[str], None]) -> None:
        self._client = client
        self._warn = warn
        self._streams: dict[RunKey, asyncio.Task[None]] = {}
        self._runs: dict[RunKey, ContainerRun] = {}
        self._batch = LogBatch()

    def pod_changed(self, state: JobState, pod: Pod) -> None:
        """Starts one stream per run, once the container has started. It may have ended between two reports: the cluster
        still has the log of the run before the last one."""
        _ = state
        for run in runs_in_status(pod, rank_of(pod.metadata.labels, pod.name)):
            if run.key not in self._streams:
                before = self._streams.get((run.pod_uid, run.container, run.number - 1))
                self._runs[run.key] = run
                self._streams[run.key] = asyncio.create_task(self._copy(run, before))

    def read(self) -> LogBatch:
        batch, self._batch = self._batch, LogBatch()
        return batch

    def is_complete(self, state: JobState) -> bool:
        left = set(state.leftover_pods())
        runs = [run for run in self._runs.values() if run.owner_uid == state.uid and run.rank not in left]
        return all(self._streams[run.key].done() for run in runs)

    async def close(self) -> None:
        for task in self._streams.values():
            task.cancel()
        await asyncio.gather(*self._streams.values(), return_exceptions=True)

    async def _copy(self, run: ContainerRun, before: "asyncio.Task[None] | None") -> None:
        """Reads a log to its end, and reconnects whenever the connection breaks."""
        if before:
            await asyncio.wait({before}, timeout=_PREVIOUS_RUN_SECONDS)
        position = LogPosition()
        for pause in itertools.chain((0.1, 0.2, 0.5, 1.0), itertools.repeat(2.0)):
            position.resume()
            try:
                async for raw in self._client.logs(
                    run.pod,
                    namespace=run.namespace,
                    container=run.container,
                    follow=not run.previous,
                    previous=run.previous,
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
                if error.code != 404 and not run.previous:
                    self._warn(f"failed to get the log of pod {run.pod}: {error.message}")
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


def _split_timestamp(raw: bytes) -> tuple[str, str]:
    """Timestamp and text of a line of a log that was requested with timestamps."""
    timestamp, _, line = raw.decode(errors="replace").rstrip("\n").partition(" ")
    return timestamp, line
