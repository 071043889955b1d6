"""The runs of a job's containers with the ends of their logs, from what its pods left on the embedded node."""

import contextlib
from dataclasses import replace
from pathlib import Path

from trainwright.api.labels import rank_of
from trainwright.cli.pods_python import install_command
from trainwright.cluster.facade import DataDir, RunLog, pod_records, whole_lines
from trainwright.insight.log_exceptions import MAX_LINE
from trainwright.objects.kinds.container_runs import ContainerRun, Line

_TAIL_BYTES = 256 * 1024
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
