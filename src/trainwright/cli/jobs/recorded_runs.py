"""What a job's pods left on the embedded node: runs with the ends of their logs, and the progress that they printed."""

import contextlib
from dataclasses import replace
from pathlib import Path

from trainwright.api.kinds import Kind
from trainwright.api.labels import rank_of
from trainwright.cli.jobs.pods.ranks import rank_order
from trainwright.cli.pods_python import install_command
from trainwright.cluster.facade import DataDir, RunLog, pod_records, whole_lines
from trainwright.insight.log_exceptions import MAX_LINE
from trainwright.insight.log_progress import Progress, advance, read_line
from trainwright.objects.kinds.container_runs import ContainerRun, Line

_TAIL_BYTES = 256 * 1024
"""How much of a log is read: its end says why it failed, and metrics are printed again and again."""
_LONG_TAIL_BYTES = 4 * 1024 * 1024
"""For a failed run whose last lines have no traceback: shutdown hooks may print a lot after it."""
_TRACEBACK = "Traceback (most recent call last)"


def recorded_runs(data: DataDir, job_uid: str, *, python: str = "") -> list[ContainerRun]:
    """All runs of the job's pods, also of deleted ones and while the cluster is not running."""
    installer = install_command(python)
    return [
        replace(
            run,
            rank=rank_of(record.labels, record.name),
            lines=_last_lines(data.node, run),
            python=python,
            installer=installer,
        )
        for record in pod_records(data, job_uid)
        for run in record.runs
    ]


def _last_lines(node: Path, run: ContainerRun) -> tuple[Line, ...]:
    if run.exit_code == 0:
        return ()
    lines = _read_tail(node, run, _TAIL_BYTES)
    if run.exit_code == 1 and not any(_TRACEBACK in line.text for line in lines):
        lines = _read_tail(node, run, _LONG_TAIL_BYTES)
    return lines


def _read_tail(node: Path, run: ContainerRun, size: int) -> tuple[Line, ...]:
    with contextlib.closing(RunLog(node, run)) as log:
        log.skip_to_tail(size)
        return tuple(Line(line.text[:MAX_LINE], line.at) for line in whole_lines(log.read_new()))


def recorded_progress(data: DataDir, job_uid: str, kind: Kind) -> Progress:
    """The progress of the first rank that printed any, in its last run; pods that were replaced count too."""
    runs = [
        (rank_order(record.labels, kind), -(run.started_at or 0.0), run)
        for record in pod_records(data, job_uid)
        for run in record.runs
        if not run.init
    ]
    for _, _, run in sorted(runs, key=lambda ordered: ordered[:2]):
        progress = _read_log(data, run)
        if progress != Progress():
            return progress
    return Progress()


def _read_log(data: DataDir, run: ContainerRun) -> Progress:
    progress = Progress()
    with contextlib.closing(RunLog(data.node, run)) as log:
        log.skip_to_tail(_TAIL_BYTES)
        for line in log.read_new():
            if reading := read_line(line.text):
                progress = advance(progress, reading, line.at)
    return progress
