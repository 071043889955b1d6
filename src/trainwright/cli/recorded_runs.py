"""The runs of a job's containers, for its diagnosis, from what its pods left on the embedded node."""

from trainwright.api.labels import rank_of
from trainwright.cli.pods_python import install_command
from trainwright.cluster.facade import ContainerRun, DataDir, PodRecord, RunLog, pod_records, whole_lines
from trainwright.insight.first_failing_rank import MAX_LINE, Line, Run

_TAIL_BYTES = 256 * 1024
_LONG_TAIL_BYTES = 4 * 1024 * 1024
"""Of a failed run whose last lines have no traceback: shutdown hooks may print a lot after it."""
_TRACEBACK = "Traceback (most recent call last)"


def recorded_runs(data: DataDir, job_uid: str, *, python: str = "") -> list[Run]:
    """All runs of the job's pods, also of deleted ones and while the cluster is not running."""
    return [_run(record, run, python) for record in pod_records(data, job_uid) for run in record.runs]


def _run(record: PodRecord, run: ContainerRun, python: str) -> Run:
    rank = rank_of(record.labels, record.name)
    return diagnosable_run(run, rank=rank, pod=record.name, lines=_last_lines(record, run), python=python, exact=True)


def diagnosable_run(
    run: ContainerRun, *, rank: str, pod: str, lines: tuple[Line, ...], python: str, exact: bool
) -> Run:
    """The run for the diagnosis of its job; `exact`: its times are from the node, not from the status of the pod."""
    return Run(
        rank=rank,
        pod=pod,
        container=run.container,
        init=run.init,
        number=run.number,
        exit_code=run.exit_code,
        reason=run.reason,
        message=run.message,
        finished_at=run.finished_at,
        exact=exact,
        lines=lines,
        python=python,
        installer=install_command(python),
        directory=run.directory,
        missing_image=run.missing_image,
        stopped=run.stopped,
    )


def _last_lines(record: PodRecord, run: ContainerRun) -> tuple[Line, ...]:
    if run.exit_code == 0:
        return ()
    lines = _read_tail(record, run, _TAIL_BYTES)
    if run.exit_code == 1 and not any(_TRACEBACK in line.text for line in lines):
        lines = _read_tail(record, run, _LONG_TAIL_BYTES)
    return tuple(lines)


def _read_tail(record: PodRecord, run: ContainerRun, size: int) -> list[Line]:
    log = RunLog(record, run)
    try:
        log.skip_to_tail(size)
        return [Line(line.text[:MAX_LINE], line.at) for line in whole_lines(log.read_new())]
    finally:
        log.close()
