"""`trainwright events`: lists the events of a job and its pods, or of a namespace."""

from datetime import UTC, datetime

import click

from trainwright.cli.jobs.events import event_rows, events_of, list_events
from trainwright.cli.jobs.references import find_job, jobs_argument
from trainwright.cli.jobs.session import Session, cluster_command
from trainwright.cli.output.formats import list_of, object_text, output_flag, without_managed_fields
from trainwright.cli.output.tables import table_lines, terminal_width


@click.command(name="events")
@jobs_argument(required=False)
@output_flag("table", "wide", "json", "yaml")
@click.option("-A", "--all-namespaces", is_flag=True, help="List the events of all namespaces.")
@click.option("--warnings", is_flag=True, help="List warnings only.")
@cluster_command
def command(session: Session, jobs: tuple[str, ...], output: str, all_namespaces: bool, warnings: bool) -> None:
    """List the events of a job and its pods, the latest last.

    Without JOB: all events of the namespace. A terminal shows long messages in several lines; -o wide in one.
    """
    if jobs:
        events = events_of(session, find_job(session, jobs))
    else:
        events = list_events(session, None if all_namespaces else session.namespace)
    if warnings:
        events = [event for event in events if event.get("type") == "Warning"]
    if output in {"json", "yaml"}:
        click.echo(object_text(list_of([without_managed_fields(event) for event in events]), output))
    elif not events:
        where = "" if all_namespaces else f" in {session.namespace} namespace"
        click.echo(f"No events found{where}.", err=True)
    else:
        head, *rows = event_rows(events, datetime.now(UTC), with_namespace=all_namespaces)
        width = None if output == "wide" else terminal_width()
        click.echo("\n".join(table_lines(head, rows, width=width, wrap=True)))
