"""`trainwright stop`, `suspend` and `resume`: the operator deletes the pods of a suspended job, and keeps the rest."""

import sys
import time

import click

from trainwright.cli.errors import TIMED_OUT, CommandError
from trainwright.cli.flags import duration
from trainwright.cli.jobs.pods.waiting_for_end import delete_pods, unfinished_pods, wait_for_end
from trainwright.cli.jobs.references import FoundJob, jobs_argument, resolve_all
from trainwright.cli.jobs.session import Session, cluster_command
from trainwright.cli.jobs.summary import finished_state


@click.command(name="stop")
@jobs_argument(required=True)
@click.option("--timeout", type=duration, metavar="DURATION", help="Stop waiting after this time (90s, 5m).")
@cluster_command
def stop_command(session: Session, jobs: tuple[str, ...], timeout: float | None) -> None:
    """Stop jobs; the jobs and their files stay.

    A program gets SIGTERM and may write a checkpoint within its grace period. Like `suspend`, but waits until the pods
    have ended. `resume` starts the job again, `delete` deletes it. Ranks that outlive a finished job are ended too.

    Exit codes: 0 stopped, 124 timed out (the pods are still ending).
    """
    deadline = time.monotonic() + timeout if timeout is not None else float("inf")
    session.announce()
    for job in resolve_all(session, jobs):
        pods = unfinished_pods(session, job)
        finished = finished_state(job.object)
        if finished and pods:
            # With cleanPodPolicy None the other ranks of a finished job run on.
            delete_pods(session, job, pods)
        else:
            _set_suspended(session, job, suspend=True)
            pods |= unfinished_pods(session, job)  # the operator may have created some meanwhile
        if not wait_for_end(session, job, pods, deadline=deadline):
            click.echo(f"pods of {job.reference} are still ending", err=True)
            sys.exit(TIMED_OUT)
        click.echo(f"{job.resource_name} stopped")
        if not finished:
            click.echo(f"start it again: trainwright resume {job.name}{session.flags}", err=True)


@click.command(name="suspend")
@jobs_argument(required=True)
@cluster_command
def suspend_command(session: Session, jobs: tuple[str, ...]) -> None:
    """End the pods of jobs without deleting the jobs.

    Returns at once; `stop` waits until the pods have ended. `resume` starts all ranks again: a program continues where
    it was only if it loads its own checkpoint.
    """
    session.announce()
    for job in resolve_all(session, jobs):
        changed = _set_suspended(session, job, suspend=True)
        click.echo(f"{job.resource_name} suspended" if changed else f"{job.resource_name} is already suspended")


@click.command(name="resume")
@jobs_argument(required=True)
@cluster_command
def resume_command(session: Session, jobs: tuple[str, ...]) -> None:
    """Start jobs that were stopped or suspended.

    All ranks start from the beginning of their programs.
    """
    session.announce()
    for job in resolve_all(session, jobs):
        changed = _set_suspended(session, job, suspend=False)
        click.echo(f"{job.resource_name} resumed" if changed else f"{job.resource_name} is not suspended")


def _set_suspended(session: Session, job: FoundJob, *, suspend: bool) -> bool:
    """Changes spec.runPolicy.suspend; False if it has this value already. A finished job is an error."""
    if state := finished_state(job.object):
        again = f"run it again with `trainwright run`, or delete it with `trainwright delete {job.name}{session.flags}`"
        raise CommandError(f"{job.reference} has {state.lower()} already: {again}")
    if job.is_suspended == suspend:
        return False
    patch = {"metadata": {"uid": job.uid}, "spec": {"runPolicy": {"suspend": suspend}}}
    session.client.patch(job.kind.resource, job.name, patch, namespace=job.namespace)
    return True
