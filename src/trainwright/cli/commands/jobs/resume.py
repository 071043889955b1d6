"""`trainwright resume`: starts suspended jobs again."""

import click

from trainwright.cli.jobs.arguments import jobs_argument
from trainwright.cli.jobs.references import resolve_all
from trainwright.cli.jobs.session import Session, cluster_command
from trainwright.cli.jobs.suspension import set_suspended


@click.command(name="resume")
@jobs_argument(required=True)
@cluster_command
def command(session: Session, jobs: tuple[str, ...]) -> None:
    """Start jobs that were stopped or suspended.

    All ranks start from the beginning of their programs.
    """
    session.announce()
    for job in resolve_all(session, jobs):
        changed = set_suspended(session, job, suspend=False)
        click.echo(f"{job.resource_name} resumed" if changed else f"{job.resource_name} is not suspended")
