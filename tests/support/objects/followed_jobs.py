"""Runs of containers, for tests of followed jobs."""

from tests.support.objects.jobs import JOB_UID
from trainwright.cli.follow.state.job_state import Run


def run_of(rank: str, *, number: int = 0, container: str = "pytorch", pod_uid: str = "") -> Run:
    """A run in the pod that `PodBuilder` would build for this rank."""
    return Run(JOB_UID, pod_uid or f"digits-{rank}-uid", rank, container, False, number)
