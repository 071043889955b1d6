"""Waits until the pods of a job have ended, and shows how they end."""

import contextlib
import math
import time
from collections.abc import Mapping
from datetime import timedelta

import click

from trainwright.api.labels import JOB_NAME, rank_of
from trainwright.cli.jobs.pods.ranks import pod_objects
from trainwright.cli.jobs.references import FoundJob
from trainwright.cli.jobs.session import Session
from trainwright.cli.jobs.watching import watch_objects
from trainwright.kube.client.errors import Conflict, NotFound
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod, read_pod
from trainwright.objects.paths import value_at
from trainwright.objects.resources import PODS
from trainwright.objects.times import human_duration

_DEFAULT_GRACE_SECONDS = 30


def unfinished_pods(session: Session, job: FoundJob) -> dict[str, Object]:
    """The job's pods that have not ended, by uid."""
    return {obj["metadata"]["uid"]: obj for obj in pod_objects(session, job) if not read_pod(obj).finished}


def delete_pods(
    session: Session, job: FoundJob, pods: Mapping[str, Object], *, grace_seconds: int | None = None
) -> None:
    """Deletes these pods; `grace_seconds` replaces their own grace period."""
    for uid, pod in pods.items():
        with contextlib.suppress(NotFound, Conflict):  # it is gone, or another pod has its name
            session.client.delete(
                PODS, pod["metadata"]["name"], namespace=job.namespace, uid=uid, grace_period_seconds=grace_seconds
            )


def wait_for_end(
    session: Session,
    job: FoundJob,
    pods: Mapping[str, Object],
    *,
    grace_seconds: int | None = None,
    deleted: bool = False,
    deadline: float = math.inf,
) -> bool:
    """Waits until these pods have ended, with `deleted` until their objects are gone; False at the deadline."""
    if not pods:
        return True
    click.echo(_beginning(pods, grace_seconds), err=True)
    start = time.monotonic()
    waiting = set(pods)
    for type_, obj in watch_objects(
        session.client,
        PODS,
        namespace=job.namespace,
        label_selector=f"{JOB_NAME}={job.name}",
        known=pods,
        deadline=deadline,
    ):
        pod = read_pod(obj)
        ended = type_ == "DELETED" or (pod.finished and not deleted)
        if ended and pod.metadata.uid in waiting:
            waiting.remove(pod.metadata.uid)
            after = human_duration(timedelta(seconds=time.monotonic() - start))
            rank = rank_of(pod.metadata.labels, pod.name)
            click.echo(f"  {rank} ended{_how(pod)} after {after}", err=True)
        if not waiting:
            return True
    return False


def _beginning(pods: Mapping[str, Object], grace_seconds: int | None) -> str:
    if grace_seconds is None:
        grace_seconds = max(_grace_seconds(obj) for obj in pods.values())
    asked = "1 pod; it has" if len(pods) == 1 else f"{len(pods)} pods; they have"
    return f"SIGTERM was sent to {asked} {grace_seconds} s to end, then SIGKILL follows"


def _grace_seconds(obj: Object) -> int:
    return int(value_at(obj, "spec", "terminationGracePeriodSeconds", default=_DEFAULT_GRACE_SECONDS))


def _how(pod: Pod) -> str:
    codes = [status.state.terminated.exit_code for status in pod.status.container_statuses if status.state.terminated]
    return f" with exit code {codes[0]}" if codes else ""
