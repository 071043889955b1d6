"""`trainwright stop`: suspends jobs and waits until their pods have ended."""

import sys
import time

import click

from trainwright.cli.errors import TIMED_OUT
from trainwright.cli.flags import duration
from trainwright.cli.jobs.arguments import jobs_argument
from trainwright.cli.jobs.pods.waiting_for_end import delete_pods, unfinished_pods, wait_for_end
from trainwright.cli.jobs.references import resolve_all
from trainwright.cli.jobs.session import Session, cluster_command
from trainwright.cli.jobs.summary import finished_state
from trainwright.cli.jobs.suspension import set_suspended


@click.command(name="stop")
@jobs_argument(required=True)
@click.option("--timeout", type=duration, metavar="DURATION", help="Stop waiting after this time (90s, 5m).")
@cluster_command
def command(session: Session, jobs: tuple[str, ...], timeout: float | None) -> None:
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
            set_suspended(session, job, suspend=True)
            pods |= unfinished_pods(session, job)  # the operator may have created some meanwhile
        if not wait_for_end(session, job, pods, deadline=deadline):
            click.echo(f"pods of {job.reference} are still ending", err=True)
            sys.exit(TIMED_OUT)
        click.echo(f"{job.resource_name} stopped")
        if not finished:
            click.echo(f"start it again: trainwright resume {job.name}{session.flags}", err=True)
