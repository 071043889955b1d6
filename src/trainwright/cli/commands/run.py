"""`trainwright run`: makes a job of a program or reads manifests, validates and applies them, and follows the jobs."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from trainwright.api.job import read_job
from trainwright.cli.console import Console
from trainwright.cli.errors import CommandError, report_errors
from trainwright.cli.flags import duration, python_path, target_flags
from trainwright.cli.follow.job_state import JobState
from trainwright.cli.follow.messages import EXIT_CODES, result_lines, still_running_lines, volume_lines
from trainwright.cli.manifests.apply import (
    active_python,
    annotated_for_node,
    apply_job,
    apply_object,
    in_apply_order,
    refuse_running_jobs,
)
from trainwright.cli.manifests.environment import read_variables, with_variables
from trainwright.cli.manifests.reader import Document
from trainwright.cli.manifests.validation import ValidObject, validate
from trainwright.cli.program.digests import with_digests
from trainwright.cli.program.flags import ProgramCommand, program_arguments, program_flags
from trainwright.cli.program.inputs import Inputs, read_inputs
from trainwright.cli.program.request import ProgramFlags, dry_run_text, program_job
from trainwright.cli.targets import NotRunningError, Target, TargetOptions, data_dir_at, find_target
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object
from trainwright.objects.paths import value_at
from trainwright.objects.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES


@click.command(name="run", cls=ProgramCommand)
@click.argument("files", nargs=-1, metavar="FILE…")
@program_flags
@click.option(
    "-e",
    "--env",
    "variables",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Set a variable in the training containers, by default to its value here; it is kept in a Secret of the job.",
)
@click.option(
    "--workdir",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="The working directory of the pods (default: the current one for a program, else that of the manifest).",
)
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
@click.option("--dry-run", is_flag=True, help="Print the objects instead of applying them.")
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), help="The format of --dry-run (default: yaml).")
@target_flags
def command(
    files: tuple[str, ...],
    module: str | None,
    variables: tuple[str, ...],
    workdir: Path | None,
    namespace: str | None,
    python: Path | None,
    follow: bool,
    timeout: float | None,
    replace: bool,
    dry_run: bool,
    output: str | None,
    context: str | None,
    kubeconfig: Path | None,
    data_dir: Path | None,
    **program: Any,
) -> None:
    """Run a program or the jobs in manifests, and follow them until they finish.

    \b
      trainwright run train.py -- --epochs 3       one process, as `python train.py --epochs 3`
      trainwright run train.py --workers 4         four processes that train together
      trainwright run job.yaml                     the jobs of a manifest

    FILE is a Python program, or manifests: YAML or JSON files, directories of them, or - for standard input. A program
    uses the current directory and the active Python environment. If the embedded cluster is selected but not running,
    it is started.

    All objects are validated before the first one is applied. A job that has finished is run again; a job that is
    running is followed.

    Exit codes: 0 succeeded, 1 failed, 124 timed out, 130 interrupted (the jobs keep running).
    """
    flags = ProgramFlags(**program)
    values = read_variables(variables)
    inputs = read_inputs(files, module, program_arguments(), flags, workdir=workdir)
    if output and not dry_run:
        raise CommandError("-o is the format of --dry-run: add --dry-run")
    target = _find_target(TargetOptions(context, kubeconfig, data_dir), dry_run=dry_run)
    if target:
        target = target.in_namespace(namespace)
    if python and target and not target.embedded:
        raise CommandError("--python is for the embedded cluster: on other clusters pods use the Python of their image")
    messages = Console.of(sys.stderr)
    if target and not dry_run:
        messages.print(target.line)
    documents = with_variables(
        _documents(inputs, flags, target, python=python, workdir=workdir, messages=messages), values
    )
    if dry_run:
        _print_dry_run(documents, target, output or "yaml", namespace=namespace)
        return
    assert target is not None  # noqa: S101 (for the type checker: only a dry run has none)
    namespace_flag = f" -n {namespace}" if namespace else ""
    again = f"trainwright run{target.flags}{namespace_flag} {shlex.join(inputs.words)}"
    console = Console.of()
    with report_errors(target.name), SyncClient(target.config) as client:
        items = in_apply_order(validate(documents, client, target.config.namespace))
        refuse_running_jobs(items, client, replace=replace)
        states = _apply(items, client, target, replace=replace, console=console)
        if not states:
            return
        if not follow:
            # With --follow the same warnings arrive as events of the jobs.
            for warning in (text for item in items if item.job for text in item.job.warnings):
                console.print(f"Warning: {warning}", colour="yellow")
            console.print(f"follow with: {again}")
            return
        sys.exit(_follow_and_report(states, client, target, console, again=again, timeout=timeout))


def _find_target(options: TargetOptions, *, dry_run: bool) -> Target | None:
    """The selected cluster. The embedded one is started if it is not running; a dry run does without it."""
    try:
        return find_target(options)
    except NotRunningError:
        if dry_run:
            return None
    # Imported here because the cluster is usually running.
    from trainwright.cli.commands.up import UpFlags, require_linux, start_detached

    require_linux()
    data = data_dir_at(options.data_dir)
    record, notes = start_detached(data, UpFlags(None, None, None, None))
    flag = f" --data-dir {data.path}" if options.data_dir else ""
    messages = Console.of(sys.stderr)
    messages.print(f"Started the embedded cluster at {record.server}; `trainwright down{flag}` stops it")
    for note in notes or ():
        messages.print(note)
    return find_target(options)


def _documents(
    inputs: Inputs,
    flags: ProgramFlags,
    target: Target | None,
    *,
    python: Path | None,
    workdir: Path | None,
    messages: Console,
) -> list[Document]:
    """What to apply, with the annotations for the embedded node."""
    embedded = target is None or target.embedded
    active = active_python()
    documents = inputs.documents
    if inputs.program:
        default = Path(target.python) if target and target.python else None
        made = program_job(
            inputs.program,
            flags,
            workdir=workdir,
            python=python or active or default,
            context=target.config.context if target and not embedded else None,
        )
        for note in made.notes:
            messages.print(note)
        documents = [made.document]
    if not embedded:
        return documents
    annotated = (annotated_for_node(document, workdir=workdir, flag=python, active=active) for document in documents)
    return [with_digests(document) for document in annotated]


def _print_dry_run(documents: list[Document], target: Target | None, output: str, *, namespace: str | None) -> None:
    if target:
        with report_errors(target.name), SyncClient(target.config) as client:
            validate(documents, client, target.config.namespace)
    click.echo(dry_run_text(documents, output, namespace=namespace))


def _apply(
    items: Sequence[ValidObject], client: SyncClient, target: Target, *, replace: bool, console: Console
) -> list[JobState]:
    states = []
    for item in items:
        if item.job is None:
            console.print(apply_object(item, client))
            continue
        created = apply_job(item, client, replace=replace, report=console.print)
        states.append(JobState(read_job(created), created["metadata"]["uid"], python=target.python))
    return states


def _follow_and_report(
    states: list[JobState],
    client: SyncClient,
    target: Target,
    console: Console,
    *,
    again: str,
    timeout: float | None,
) -> int:
    """Follows the jobs and prints their results; returns the exit code."""
    try:
        in_time = _follow(states, target, console, timeout=timeout)
    except KeyboardInterrupt:
        in_time = None
    for state in states:
        if state.outcome:
            colour = "green" if state.outcome == "Succeeded" else "red"
            first, *rest = result_lines(state, now=datetime.now(UTC), kubectl=target.kubectl)
            console.print(first, colour=colour)
            for line in (*rest, *volume_lines(_volumes(state, client))):
                console.print(line)
        else:
            for line in still_running_lines(state, again=again, kubectl=target.kubectl):
                console.print(line)
    if in_time is None:
        return 130  # as for every command that Ctrl-C has ended
    if not in_time:
        return 124
    return max(EXIT_CODES.get(state.outcome or "", 1) for state in states)


def _follow(states: list[JobState], target: Target, console: Console, *, timeout: float | None) -> bool:
    # Imported here, while the pods are starting, because it takes longer than everything before.
    import asyncio

    from trainwright.cli.follow.follower import follow
    from trainwright.kube.client.async_client import Client

    restart = f" (to restart it: `trainwright up --detach{target.flags}`)" if target.embedded else ""
    advice = f"waiting for the cluster{restart}; the jobs keep running if you stop with Ctrl-C"

    async def session() -> bool:
        async with Client(target.config) as client:
            return await follow(client, states, console, timeout=timeout, advice=advice)

    return asyncio.run(session())


def _volumes(state: JobState, client: SyncClient) -> Iterator[tuple[str, str, str]]:
    """Name, mount path and location of the job's volumes whose location is known."""
    for replica in read_job(state.object).replicas.values():
        spec = replica.template.get("spec") or {}
        mounts = {
            mount["name"]: mount["mountPath"]
            for container in spec.get("containers") or ()
            for mount in container.get("volumeMounts") or ()
        }
        for volume in spec.get("volumes") or ():
            location = _location(volume, state.namespace, client)
            if location and volume["name"] in mounts:
                yield volume["name"], mounts[volume["name"]], location


def _location(volume: Object, namespace: str, client: SyncClient) -> str | None:
    if host := volume.get("hostPath"):
        return str(host["path"])
    claim = value_at(volume, "persistentVolumeClaim", "claimName")
    if not claim:
        return None
    try:
        bound = client.get(PERSISTENT_VOLUME_CLAIMS, claim, namespace=namespace)
        name = value_at(bound, "spec", "volumeName")
        if not name:
            return None
        spec = client.get(PERSISTENT_VOLUMES, name)["spec"]
    except (ApiError, Unreachable):
        return None  # not found or not allowed to get: the result is printed without it
    if path := value_at(spec, "hostPath", "path") or value_at(spec, "local", "path"):
        return str(path)
    if share := spec.get("nfs"):
        return f"{share.get('server')}:{share.get('path')}"
    return f"PersistentVolume {name}"
