"""`trainwright suspend`: ends the pods of jobs and keeps the jobs; `resume` starts them again."""

import click

from trainwright.cli.jobs.arguments import jobs_argument
from trainwright.cli.jobs.references import resolve_all
from trainwright.cli.jobs.session import Session, cluster_command
from trainwright.cli.jobs.suspension import set_suspended


@click.command(name="suspend")
@jobs_argument(required=True)
@cluster_command
def command(session: Session, jobs: tuple[str, ...]) -> None:
    """End the pods of jobs without deleting the jobs.

    Returns at once; `stop` waits until the pods have ended. `resume` starts all ranks again: a program continues where
    it was only if it loads its own checkpoint.
    """
    session.announce()
    for job in resolve_all(session, jobs):
        changed = set_suspended(session, job, suspend=True)
        click.echo(f"{job.resource_name} suspended" if changed else f"{job.resource_name} is already suspended")
