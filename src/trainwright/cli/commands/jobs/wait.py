"""`trainwright wait`: waits until jobs reach a state."""

import sys
import time
from dataclasses import dataclass

import click

from trainwright.cli.errors import TIMED_OUT
from trainwright.cli.flags import duration
from trainwright.cli.jobs.references import FoundJob, jobs_argument, resolve_all
from trainwright.cli.jobs.session import Session, cluster_command
from trainwright.cli.jobs.summary import finished_state
from trainwright.cli.jobs.watching import watch_objects
from trainwright.kube.client.errors import Unreachable
from trainwright.objects.conditions import find_condition

_STATES = ("succeeded", "finished", "failed", "running", "suspended", "deleted")


@dataclass(frozen=True, slots=True)
class Goal:
    """What to wait for: one of _STATES, or a condition with a status."""

    text: str
    condition: str = ""
    status: str = "True"

    def is_met(self, job: FoundJob) -> bool:
        if self.text == "deleted" or job.deleted:
            return job.deleted and self.text == "deleted"
        if self.text == "finished":
            return finished_state(job.object) is not None
        found = find_condition(job.object.get("status") or {}, self.condition)
        return found is not None and str(found.get("status")).lower() == self.status.lower()

    def is_impossible(self, job: FoundJob) -> bool:
        """Whether the job has ended without reaching it: a finished job does not change any more."""
        return (job.deleted or finished_state(job.object) is not None) and self.text != "deleted"


def read_goal(text: str) -> Goal:
    """`succeeded`, `condition=Running`, `condition=Running=False`; `delete` and letter case as in kubectl."""
    lower = {"delete": "deleted"}.get(text.lower(), text.lower())
    if lower in _STATES:
        return Goal(lower, condition=lower.capitalize())
    kind, _, rest = text.partition("=")
    condition, _, status = rest.partition("=")
    if kind.lower() != "condition" or not condition:
        choices = ", ".join(_STATES)
        raise click.BadParameter(f"{text!r} is not known: write one of {choices}, or condition=TYPE[=STATUS]")
    return Goal(text, condition=condition[0].upper() + condition[1:], status=status or "True")


@click.command(name="wait")
@jobs_argument(required=True)
@click.option(
    "--for",
    "goal",
    type=read_goal,
    default="succeeded",
    show_default=True,
    metavar="STATE",
    help=f"One of {', '.join(_STATES)}, or condition=TYPE[=STATUS].",
)
@click.option("--timeout", type=duration, metavar="DURATION", help="Give up after this time (90s, 5m; default: never).")
@cluster_command
def command(session: Session, jobs: tuple[str, ...], goal: Goal, timeout: float | None) -> None:
    """Wait until jobs reach a state.

    Exit codes: 0 reached, 1 the job ended without reaching it, 124 timed out.
    """
    deadline = time.monotonic() + timeout if timeout is not None else float("inf")
    for job in resolve_all(session, jobs):
        last = _wait(session, job, goal, deadline)
        if goal.is_met(last):
            click.echo(f"{job.resource_name} {'condition met' if goal.text.startswith('condition') else goal.text}")
        elif goal.is_impossible(last):
            state = "was deleted" if last.deleted else f"has {str(finished_state(last.object)).lower()}"
            click.echo(f"{job.reference} {state}; it cannot become {goal.text}", err=True)
            if not last.deleted:
                click.echo(f"see trainwright describe {job.name}{session.flags}", err=True)
            sys.exit(1)
        else:
            click.echo(f"timed out waiting for {goal.text} of {job.reference}", err=True)
            sys.exit(TIMED_OUT)


def _wait(session: Session, job: FoundJob, goal: Goal, deadline: float) -> FoundJob:
    """The job when the goal is met or impossible, or at the deadline."""
    if goal.is_met(job) or goal.is_impossible(job):
        return job
    for type_, obj in watch_objects(
        session.client,
        job.kind.resource,
        namespace=job.namespace,
        field_selector=f"metadata.name={job.name}",
        known={job.uid: job.object},
        deadline=deadline,
        on_unreachable=_warn,
    ):
        if obj["metadata"]["uid"] != job.uid:
            continue  # a new job of the same name
        job = FoundJob(job.kind, obj, deleted=type_ == "DELETED")
        if goal.is_met(job) or goal.is_impossible(job):
            break
    return job


def _warn(error: Unreachable) -> None:
    click.echo(f"Warning: {error}; waiting for the cluster", err=True)
