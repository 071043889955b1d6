"""Progress and metrics of a job on the embedded cluster, from the logs that its pods left on the node."""

import contextlib

from trainwright.api.kinds import Kind
from trainwright.cli.jobs.pods.ranks import rank_order
from trainwright.cli.jobs.references import FoundJob
from trainwright.cli.jobs.session import Session
from trainwright.cluster.facade import DataDir, RunLog, pod_records
from trainwright.insight.log_progress import Progress, advance, read_line
from trainwright.objects.kinds.container_runs import ContainerRun

_TAIL_BYTES = 256 * 1024
"""How much of a log is read: metrics are printed again and again."""


def last_metrics(session: Session, job: FoundJob) -> dict[str, float]:
    """The last value of each metric; empty on other clusters and where no rank printed any."""
    data = session.target.data
    return dict(recorded_progress(data, job.uid, job.kind).metrics) if data else {}


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
