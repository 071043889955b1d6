"""`trainwright delete`: deletes jobs, and waits until their pods have ended."""

import contextlib
import sys

import click

from trainwright.cli.errors import CommandError
from trainwright.cli.jobs.pods.waiting_for_end import delete_pods, unfinished_pods, wait_for_end
from trainwright.cli.jobs.recorded_runs import recorded_progress
from trainwright.cli.jobs.references import FoundJob, jobs_argument, list_jobs, read_references, resolve_all
from trainwright.cli.jobs.session import Session, cluster_command
from trainwright.cli.jobs.summary import finished_state, rank_count
from trainwright.kube.client.errors import NotFound
from trainwright.objects import Object

_NOW_SECONDS = 1
"""The grace period of --now, as in kubectl."""


@click.command(name="delete")
@jobs_argument(required=False)
@click.option("--all", "all_jobs", is_flag=True, help="Delete all jobs of the namespace; of one kind if you name it.")
@click.option("--now", is_flag=True, help="End the pods within a second, without their grace period.")
@click.option("--wait/--no-wait", default=True, help="Wait until the pods have ended (default).")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation of --all.")
@cluster_command
def command(session: Session, jobs: tuple[str, ...], all_jobs: bool, now: bool, wait: bool, yes: bool) -> None:
    """Delete jobs with their pods, logs and private files.

    Volumes, files in your directories and the history of runs stay. A program gets SIGTERM and may write a checkpoint
    within its grace period.
    """
    found = _all_jobs(session, jobs) if all_jobs else resolve_all(session, jobs)
    if all_jobs and not found:
        click.echo(f"No resources found in {session.namespace} namespace.", err=True)
        return
    session.announce()
    if all_jobs and not yes:
        _confirm(session, found)
    running = [(job, _delete(session, job, now=now)) for job in found]
    for job, pods in running:
        if wait:
            wait_for_end(session, job, pods, grace_seconds=_NOW_SECONDS if now else None, deleted=True)
        click.echo(f'{job.kind.singular}.kubeflow.org "{job.name}" deleted')


def _all_jobs(session: Session, words: tuple[str, ...]) -> list[FoundJob]:
    references = read_references(words)
    if any(reference.name for reference in references):
        raise CommandError("--all cannot be combined with the name of a job")
    return list_jobs(session, kind=references[0].kind if references else None)


def _confirm(session: Session, jobs: list[FoundJob]) -> None:
    names = ", ".join(job.reference for job in jobs)
    if not sys.stdin.isatty():
        raise CommandError(f"--all deletes {names}: confirm it with --yes, standard input is not a terminal")
    click.confirm(f"Delete {names} in namespace {session.namespace}?", abort=True)


def _delete(session: Session, job: FoundJob, *, now: bool) -> dict[str, Object]:
    """Deletes the job; the garbage collector deletes its pods. Returns those that were running."""
    pods = unfinished_pods(session, job)
    if not finished_state(job.object):
        _record(session, job)
    with contextlib.suppress(NotFound):
        session.client.delete(job.kind.resource, job.name, namespace=job.namespace, uid=job.uid)
    if now:
        delete_pods(session, job, pods, grace_seconds=_NOW_SECONDS)
    return pods


def _record(session: Session, job: FoundJob) -> None:
    """Keeps the metrics of a run that is deleted before its end."""
    from trainwright.cli.history import append, history_file, run_of

    data = session.target.data
    metrics = recorded_progress(data, job.uid, job.kind).metrics if data else {}
    run = run_of(job.object, state="Deleted", metrics=metrics, ranks=rank_count(job.object, job.kind))
    append(history_file(session.target), run)
