"""Runs of containers, for tests of followed jobs."""

from tests.support.objects.jobs import JOB_UID
from trainwright.objects.kinds.container_runs import ContainerRun


def run_of(rank: str, *, number: int = 0, container: str = "pytorch", pod_uid: str = "") -> ContainerRun:
    """A run in the pod that `PodBuilder` would build for this rank."""
    uid = pod_uid or f"digits-{rank}-uid"
    return ContainerRun(owner_uid=JOB_UID, pod_uid=uid, rank=rank, container=container, number=number)
