"""`trainwright run`: validates manifests, applies them, and follows their jobs until all have finished."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from trainwright.api.job import read_job
from trainwright.cli.console import Console
from trainwright.cli.errors import CommandError, report_errors
from trainwright.cli.flags import duration, python_path, target_flags
from trainwright.cli.follow.job_state import JobState
from trainwright.cli.follow.report import follow_and_report
from trainwright.cli.follow.suggestions import Suggestions
from trainwright.cli.manifests.apply import (
    active_python,
    annotate_for_node,
    apply_job,
    apply_object,
    in_apply_order,
    refuse_running_jobs,
)
from trainwright.cli.manifests.reader import read_manifests
from trainwright.cli.manifests.validation import ValidObject, validate
from trainwright.cli.targets import Target, TargetOptions, find_target
from trainwright.kube.client.sync_client import SyncClient


@click.command(name="run")
@click.argument("files", nargs=-1, required=True, metavar="FILE…")
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="The namespace of objects that set none (default: the namespace of the context).",
)
@click.option(
    "--python",
    type=python_path,
    metavar="PATH",
    help="The Python of the pods on the embedded cluster (default: the active virtual or conda environment).",
)
@click.option("--follow/--no-follow", default=True, help="Follow the jobs (default), or return after applying.")
@click.option(
    "--timeout",
    type=duration,
    metavar="DURATION",
    help="Stop following after this time (90s, 5m); the jobs keep running.",
)
@click.option("--replace", is_flag=True, help="Delete and recreate jobs that are running with a different spec.")
@click.option("--rm", is_flag=True, help="Delete the jobs, with their pods and logs, at the end or after Ctrl-C.")
@target_flags
def command(
    files: tuple[str, ...],
    namespace: str | None,
    python: Path | None,
    follow: bool,
    timeout: float | None,
    replace: bool,
    rm: bool,
    context: str | None,
    kubeconfig: Path | None,
    data_dir: Path | None,
) -> None:
    """Run the jobs in manifests and follow them until they finish.

    FILE is a YAML or JSON file, a directory of them, or - for standard input. All objects are validated before the
    first one is applied. A job that has finished is run again; a job that is running is followed.

    Ctrl-C leaves the jobs running; a second one asks whether to stop them.

    Exit codes: 0 succeeded, 1 failed, 124 timed out, 130 interrupted or stopped.
    """
    documents = read_manifests(files)
    target = find_target(TargetOptions(context, kubeconfig, data_dir)).in_namespace(namespace)
    if python and not target.embedded:
        raise CommandError("--python is for the embedded cluster: on other clusters pods use the Python of their image")
    console = Console.of()
    Console.of(sys.stderr).print(target.line)
    with report_errors(target.name), SyncClient(target.config) as client:
        items = in_apply_order(validate(documents, client, target.config.namespace))
        refuse_running_jobs(items, client, replace=replace)
        states = _apply(items, client, target, python=python, replace=replace, console=console)
        if not states:
            return
        if not follow:
            # With --follow the same warnings arrive as events of the jobs.
            for warning in (text for item in items if item.job for text in item.job.warnings):
                console.print(f"Warning: {warning}", colour="yellow")
            for state in states:
                console.print(f"follow with: {Suggestions.of(target).command('logs -f', state)}")
            return
        sys.exit(follow_and_report(states, client, target, console, timeout=timeout, remove=rm))


def _apply(
    items: Sequence[ValidObject],
    client: SyncClient,
    target: Target,
    *,
    python: Path | None,
    replace: bool,
    console: Console,
) -> list[JobState]:
    states = []
    for item in items:
        if item.job is None:
            console.print(apply_object(item, client))
            continue
        wanted = item.document.object
        if target.embedded:
            wanted = annotate_for_node(wanted, item.document.directory, flag=python, active=active_python())
        created = apply_job(item, wanted, client, replace=replace, report=console.print)
        states.append(JobState(read_job(created), created["metadata"]["uid"], python=target.python))
    return states
