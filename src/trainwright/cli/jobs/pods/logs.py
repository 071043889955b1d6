"""The logs of a job's ranks: from the node's records on the embedded cluster, elsewhere from the API."""

import contextlib
import heapq
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import NamedTuple

from trainwright.cli.jobs.pods.ranks import RankPod
from trainwright.cli.jobs.session import Session
from trainwright.cluster.facade import DataDir, RunLog, whole_lines
from trainwright.objects.kinds.container_runs import ContainerRun, timed_line

_LINE_BYTES = 1024
"""More than most lines of a log."""


class LoggedLine(NamedTuple):
    at: float
    """Seconds since the epoch."""
    run: ContainerRun
    text: str


@dataclass(frozen=True, slots=True)
class LogRange:
    """Which lines of each run are wanted."""

    tail: int | None = None
    since: float | None = None
    """Seconds since the epoch."""


def logged_runs(pods: Iterable[RankPod], *, container: str | None = None) -> list[ContainerRun]:
    """All runs of containers whose logs can be read, by rank, the oldest first; of init containers only if one is
    named. The API has the logs that the status of a pod shows, the node has all."""
    runs = (run for pod in pods for run in pod.runs)
    return [run for run in runs if (container is None and not run.init) or container == run.container]


def current_runs(runs: Iterable[ContainerRun], *, previous: bool = False) -> list[ContainerRun]:
    """The last run of each rank's containers, or the one before it."""
    by_container: dict[tuple[str, str], list[ContainerRun]] = {}
    for run in runs:
        by_container.setdefault((run.rank, run.container), []).append(run)
    index = 2 if previous else 1
    return [found[-index] for found in by_container.values() if len(found) >= index]


def read_logs(session: Session, runs: Iterable[ContainerRun], wanted: LogRange) -> Iterator[LoggedLine]:
    """The lines of all runs, in the order in which they were written."""
    return heapq.merge(*(read_log(session, run, wanted) for run in runs), key=attrgetter("at"))


def read_log(session: Session, run: ContainerRun, wanted: LogRange) -> Iterable[LoggedLine]:
    """The lines of one run, with ascending times. Exact runs are those that the embedded node has recorded."""
    data = session.target.data
    lines = _recorded_lines(data, run, wanted.tail) if data and run.exact else _lines_from_api(session, run, wanted)
    if wanted.since is not None:
        lines = (line for line in lines if line.at >= (wanted.since or 0.0))
    return deque(lines, maxlen=wanted.tail) if wanted.tail is not None else lines


def _recorded_lines(data: DataDir, run: ContainerRun, tail: int | None = None) -> Iterator[LoggedLine]:
    """At least the last `tail` lines: a log may be 50 MiB long."""
    if tail is not None:
        last = list(_read_record(data, run, skip_to=(tail + 1) * _LINE_BYTES))
        # The first line may be the end of a longer one.
        if len(last) > tail:
            yield from last[1:]
            return
    yield from _read_record(data, run)


def _read_record(data: DataDir, run: ContainerRun, *, skip_to: int | None = None) -> Iterator[LoggedLine]:
    """With `skip_to` only about so many bytes at the end."""
    last = 0.0
    with contextlib.closing(RunLog(data.node, run)) as log:
        if skip_to is not None:
            log.skip_to_tail(skip_to)
        for line in whole_lines(log.read_new()):
            # Lines of one run stay in their order, even if the machine's clock was set back.
            last = max(last, line.at)
            yield LoggedLine(last, run, line.text)


def _lines_from_api(session: Session, run: ContainerRun, wanted: LogRange) -> Iterator[LoggedLine]:
    since = datetime.fromtimestamp(wanted.since, UTC) if wanted.since is not None else None
    last = 0.0
    for raw in session.client.logs(
        run.pod,
        namespace=run.namespace,
        container=run.container,
        previous=run.previous,
        since_time=since,
        tail_lines=wanted.tail,
        timestamps=True,
    ):
        line = timed_line(raw)
        last = max(last, line.at or 0.0)
        yield LoggedLine(last, run, line.text)
