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
from trainwright.cluster.facade import RunLog, whole_lines
from trainwright.objects.times import parse_time

_LINE_BYTES = 1024
"""More than most lines of a log."""


@dataclass(frozen=True, slots=True)
class LoggedRun:
    """One run of a container whose log can be read."""

    pod: RankPod
    container: str
    number: int
    """0 is the first run of the container."""
    previous: bool = False
    """On other clusters: the run before the one that the API calls the current one."""

    @property
    def rank(self) -> str:
        return self.pod.rank


class Line(NamedTuple):
    at: float
    """Seconds since the epoch."""
    run: LoggedRun
    text: str


@dataclass(frozen=True, slots=True)
class LogRange:
    """Which lines of each run are wanted."""

    tail: int | None = None
    since: float | None = None
    """Seconds since the epoch."""


def logged_runs(pods: Iterable[RankPod], *, container: str | None = None) -> list[LoggedRun]:
    """All runs of containers, by rank, the oldest first; of init containers only if one is named."""
    runs = [run for pod in pods for run in _runs(pod, with_init=container is not None)]
    return [run for run in runs if container in {None, run.container}]


def current_runs(runs: Iterable[LoggedRun], *, previous: bool = False) -> list[LoggedRun]:
    """The last run of each rank's containers, or the one before it."""
    by_container: dict[tuple[str, str], list[LoggedRun]] = {}
    for run in runs:
        by_container.setdefault((run.rank, run.container), []).append(run)
    index = 2 if previous else 1
    return [found[-index] for found in by_container.values() if len(found) >= index]


def read_logs(session: Session, runs: Iterable[LoggedRun], wanted: LogRange) -> Iterator[Line]:
    """The lines of all runs, in the order in which they were written."""
    return heapq.merge(*(read_log(session, run, wanted) for run in runs), key=attrgetter("at"))


def read_log(session: Session, run: LoggedRun, wanted: LogRange) -> Iterable[Line]:
    """The lines of one run, with ascending times."""
    lines = _recorded_lines(run, wanted.tail) if run.pod.record else _lines_from_api(session, run, wanted)
    if wanted.since is not None:
        lines = (line for line in lines if line.at >= (wanted.since or 0.0))
    return deque(lines, maxlen=wanted.tail) if wanted.tail is not None else lines


def _runs(pod: RankPod, *, with_init: bool) -> Iterator[LoggedRun]:
    if pod.record is not None:
        for run in pod.record.runs:
            if with_init or not run.init:
                yield LoggedRun(pod, run.container, run.number)
    elif pod.pod is not None:
        init = pod.pod.status.init_container_statuses if with_init else ()
        for status in (*init, *pod.pod.status.container_statuses):
            # The API has the log of the last run and of the one before it. While a container waits for its next start,
            # the last run is in lastState.
            before = status.last_state.terminated is not None
            if before and not status.state.waiting:
                yield LoggedRun(pod, status.name, max(status.restart_count - 1, 0), previous=True)
            if before or status.state.running or status.state.terminated:
                yield LoggedRun(pod, status.name, status.restart_count)


def _recorded_lines(run: LoggedRun, tail: int | None = None) -> Iterator[Line]:
    """At least the last `tail` lines: a log may be 50 MiB long."""
    if tail is not None:
        last = list(_read_record(run, skip_to=(tail + 1) * _LINE_BYTES))
        # The first line may be the end of a longer one.
        if len(last) > tail:
            yield from last[1:]
            return
    yield from _read_record(run)


def _read_record(run: LoggedRun, *, skip_to: int | None = None) -> Iterator[Line]:
    """With `skip_to` only about so many bytes at the end."""
    record = run.pod.record
    runs = record.runs if record else ()
    found = next((one for one in runs if (one.container, one.number) == (run.container, run.number)), None)
    if record is None or found is None:
        return
    last = 0.0
    with contextlib.closing(RunLog(record, found)) as log:
        if skip_to is not None:
            log.skip_to_tail(skip_to)
        for line in whole_lines(log.read_new()):
            # Lines of one run stay in their order, even if the machine's clock was set back.
            last = max(last, line.at)
            yield Line(last, run, line.text)


def _lines_from_api(session: Session, run: LoggedRun, wanted: LogRange) -> Iterator[Line]:
    since = datetime.fromtimestamp(wanted.since, UTC) if wanted.since is not None else None
    last = 0.0
    for raw in session.client.logs(
        run.pod.name,
        namespace=run.pod.pod.metadata.namespace if run.pod.pod else session.namespace,
        container=run.container,
        previous=run.previous,
        since_time=since,
        tail_lines=wanted.tail,
        timestamps=True,
    ):
        stamp, _, text = raw.decode(errors="replace").rstrip("\n").partition(" ")
        with contextlib.suppress(ValueError):
            last = max(last, parse_time(stamp).timestamp())
        yield Line(last, run, text)
