"""Progress and metrics of a job on the embedded cluster, from the logs that its pods left on the node."""

from trainwright.cli.jobs.ranks import RankPod, rank_pods
from trainwright.cli.jobs.references import FoundJob
from trainwright.cli.jobs.session import Session
from trainwright.cluster.embedded import RunLog
from trainwright.insight.progress import Progress, advance, read_line


def last_metrics(session: Session, job: FoundJob) -> dict[str, float]:
    """The last value of each metric; empty on other clusters and where no rank printed any."""
    return dict(progress_of(rank_pods(session, job)).metrics) if session.target.data else {}


def progress_of(pods: list[RankPod]) -> Progress:
    """The progress of the first rank that printed any, over all its pods and runs."""
    for rank in dict.fromkeys(one.rank for one in pods):
        progress = Progress()
        for one in pods:
            if one.rank == rank:
                progress = _read_logs(one, progress)
        if progress != Progress():
            return progress
    return Progress()


def _read_logs(pod: RankPod, progress: Progress) -> Progress:
    if pod.record is None:
        return progress
    for run in pod.record.runs:
        if run.init:
            continue
        log = RunLog(pod.record, run)
        try:
            for line in log.read_new():
                if reading := read_line(line.text):
                    progress = advance(progress, reading, line.at)
        finally:
            log.close()
    return progress
