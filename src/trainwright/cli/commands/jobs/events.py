"""`trainwright events`: lists the events of a job and its pods, or of a namespace."""

import re
from datetime import UTC, datetime

import click

from trainwright.cli.jobs.references import FoundJob, find_job, jobs_argument
from trainwright.cli.jobs.session import Session, cluster_command
from trainwright.cli.jobs.summary import human_age
from trainwright.cli.output.formats import list_of, object_text, output_flag, without_managed_fields
from trainwright.cli.output.tables import table_lines, terminal_width
from trainwright.objects import Object
from trainwright.objects.paths import value_at
from trainwright.objects.resources import EVENTS


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


def list_events(session: Session, namespace: str | None) -> list[Object]:
    """The latest last."""
    return sorted(session.client.list(EVENTS, namespace=namespace).items, key=last_seen)


def events_of(session: Session, job: FoundJob) -> list[Object]:
    """The events of this run of the job, and of the pods and Services that it has or had."""
    return [event for event in list_events(session, job.namespace) if _is_about(event, job)]


def event_rows(events: list[Object], now: datetime, *, with_namespace: bool = False) -> list[list[str]]:
    """Head and rows of the table that kubectl prints."""
    rows = [["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]]
    for event in events:
        count = int(value_at(event, "series", "count", default=0) or event.get("count") or 1)
        age = human_age(last_seen(event) or None, now) + (f" (x{count})" if count > 1 else "")
        kind, name = (value_at(event, "involvedObject", key, default="") for key in ("kind", "name"))
        message = " ".join(str(event.get("message") or "").split())
        rows.append(
            [age, str(event.get("type") or ""), str(event.get("reason") or ""), f"{kind.lower()}/{name}", message]
        )
    if with_namespace:
        names = ["NAMESPACE", *(str(event["metadata"].get("namespace") or "") for event in events)]
        rows = [[name, *row] for name, row in zip(names, rows, strict=True)]
    return rows


def last_seen(event: Object) -> str:
    times = (
        value_at(event, "series", "lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
        event["metadata"].get("creationTimestamp"),
    )
    return next((str(time) for time in times if time), "")


def _is_about(event: Object, job: FoundJob) -> bool:
    """By uid for the job itself. The pods of an earlier run had the same names: their events are older than the job."""
    about = event.get("involvedObject") or {}
    if about.get("uid") == job.uid:
        return True
    if about.get("kind") not in {"Pod", "Service", "PodGroup"} or last_seen(event) < _created(job):
        return False
    roles = "|".join(re.escape(role.label) for role in job.kind.roles)
    return re.fullmatch(rf"{re.escape(job.name)}(?:-(?:{roles})(?:-\d+)?)?", str(about.get("name") or "")) is not None


def _created(job: FoundJob) -> str:
    return str(job.object["metadata"].get("creationTimestamp") or "")
