"""`trainwright run`: makes a job of a program or reads manifests, validates and applies them, and follows the jobs."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from trainwright.cli.errors import CommandError, report_errors
from trainwright.cli.flags import TargetOptions, duration, python_path, target_flags
from trainwright.cli.manifests.apply import (
    annotated_for_node,
    apply_job,
    apply_object,
    in_apply_order,
    refuse_running_jobs,
)
from trainwright.cli.manifests.environment import read_variables, with_variables
from trainwright.cli.manifests.reader import Document, read_manifests
from trainwright.cli.manifests.validation import ValidObject, validate
from trainwright.cli.output.console import Console
from trainwright.cli.pods_python import callers_python
from trainwright.cli.program.digests import with_digests
from trainwright.cli.program.flags import ProgramCommand, program_arguments, program_flags
from trainwright.cli.program.request import ProgramFlags, dry_run_text, program_job
from trainwright.cli.program.source import SUFFIX, Program, find_file, find_module
from trainwright.cli.targets import NotRunningError, Target, data_dir_at, find_target
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects import Object


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
    help="The Python of the pods on the embedded cluster (default: the active virtual or conda environment, else that "
    "of `up --python`, else python3 on PATH).",
)
@click.option("--follow/--no-follow", default=True, help="Follow the jobs (default), or return after applying.")
@click.option(
    "--timeout",
    type=duration,
    metavar="DURATION",
    help="Stop following after this time (90s, 5m); the jobs keep running.",
)
@click.option("--replace", is_flag=True, help="Delete and recreate jobs that are stopped or run with another spec.")
@click.option("--rm", is_flag=True, help="Delete the jobs, with their pods and logs, at the end or after Ctrl-C.")
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
    rm: bool,
    dry_run: bool,
    output: str | None,
    options: TargetOptions,
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

    Ctrl-C does not stop the jobs. A second one asks whether to stop them or to leave them running.

    Exit codes: 0 succeeded, 1 failed, 124 timed out, 130 interrupted or stopped.
    """
    flags = ProgramFlags(**program)
    values = read_variables(variables)
    inputs = _read_inputs(files, module, program_arguments(), flags, workdir=workdir)
    if output and not dry_run:
        raise CommandError("-o is the format of --dry-run: add --dry-run")
    target = _find_target(options, dry_run=dry_run)
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
    console = Console.of()
    with report_errors(target.name), SyncClient(target.config) as client:
        items = in_apply_order(validate(documents, client, target.config.namespace))
        refuse_running_jobs(items, client, target, replace=replace)
        jobs = _apply(items, client, target, replace=replace, console=console)
        if jobs and not follow:
            _suggest_following(items, jobs, target, console)
        elif jobs:
            # The user of a program has not chosen a cleanPodPolicy that leaves pods for debugging.
            ends_ranks = isinstance(inputs, Program)
            # Imported here, while the pods are starting.
            from trainwright.cli.follow.report import follow_and_report

            sys.exit(
                follow_and_report(jobs, client, target, console, timeout=timeout, remove=rm, ends_ranks=ends_ranks)
            )


def _find_target(options: TargetOptions, *, dry_run: bool) -> Target | None:
    """The selected cluster. The embedded one is started if it is not running; a dry run does without it."""
    try:
        return find_target(options)
    except NotRunningError:
        if dry_run:
            return None
    # Imported here because the cluster is usually running.
    from trainwright.cli.commands.up import require_linux, start_detached
    from trainwright.cli.up.up_flags import UpFlags

    require_linux()
    data = data_dir_at(options.data_dir)
    record, notes = start_detached(data, UpFlags())
    flag = f" --data-dir {data.path}" if options.data_dir else ""
    messages = Console.of(sys.stderr)
    messages.print(f"Started the embedded cluster at {record.server}; `trainwright down{flag}` stops it")
    for note in notes or ():
        messages.print(note)
    return find_target(options)


def _documents(
    inputs: Program | list[Document],
    flags: ProgramFlags,
    target: Target | None,
    *,
    python: Path | None,
    workdir: Path | None,
    messages: Console,
) -> list[Document]:
    """What to apply, with the annotations for the embedded node."""
    embedded = target is None or target.embedded
    if embedded and workdir and not workdir.is_dir():
        raise CommandError(f"--workdir {workdir} is not a directory of this machine")
    found = callers_python(default_named=bool(target and target.python_named))
    callers = found.path if found else None
    if isinstance(inputs, Program):
        default = Path(target.python) if target and target.python else None
        document, notes = program_job(
            inputs,
            flags,
            workdir=workdir,
            python=python or callers or default,
            context=target.config.context if target and not embedded else None,
        )
        for note in notes:
            messages.print(note)
        inputs = [document]
    if not embedded:
        return inputs
    annotated = (annotated_for_node(document, workdir=workdir, flag=python, default=callers) for document in inputs)
    return [with_digests(document) for document in annotated]


def _print_dry_run(documents: list[Document], target: Target | None, output: str, *, namespace: str | None) -> None:
    if target:
        with report_errors(target.name), SyncClient(target.config) as client:
            validate(documents, client, target.config.namespace)
    click.echo(dry_run_text(documents, output, namespace=namespace))


def _apply(
    items: Sequence[ValidObject], client: SyncClient, target: Target, *, replace: bool, console: Console
) -> list[Object]:
    """Returns the jobs as the cluster has them."""
    jobs = []
    for item in items:
        if item.job is None:
            console.print(apply_object(item, client))
        else:
            jobs.append(apply_job(item, client, target, replace=replace, report=console.print))
    return jobs


def _suggest_following(items: Sequence[ValidObject], jobs: Sequence[Object], target: Target, console: Console) -> None:
    """Prints the warnings about the jobs, which `--follow` shows as events, and how to follow them."""
    from trainwright.cli.follow.state.job_state import state_of
    from trainwright.cli.follow.texts.messages import Suggestions

    for warning in (text for item in items if item.job for text in item.job.warnings):
        console.print(f"Warning: {warning}", colour="yellow")
    for job in jobs:
        console.print(f"follow with: {Suggestions.of(target).command('logs -f', state_of(job, target))}")


# What to run


def _read_inputs(
    files: tuple[str, ...],
    module: str | None,
    arguments: tuple[str, ...],
    flags: ProgramFlags,
    *,
    workdir: Path | None = None,
) -> Program | list[Document]:
    """One program, or the objects of manifests. `arguments` are the words after `--`."""
    if not files and not module:
        files, arguments = arguments, ()  # `run -- job.yaml`
    if module:
        if files:
            raise CommandError(f"-m {module} and {files[0]}: run one of them; the module's own arguments follow --")
        return find_module(module, (workdir or Path.cwd()).absolute(), arguments)
    if not files:
        raise click.UsageError("name a program (train.py) or a manifest (job.yaml)")
    programs = [name for name in files if name.endswith(SUFFIX)]
    if programs:
        return _only_program(programs[0], files, arguments)
    if arguments:
        raise CommandError(f"{' '.join(arguments)}: arguments after -- are for a program, and {files[0]} is a manifest")
    if given := flags.given():
        raise CommandError(f"{given[0]} is for programs such as train.py: in a manifest, edit {files[0]} instead")
    return read_manifests(files)


def _only_program(name: str, files: tuple[str, ...], arguments: tuple[str, ...]) -> Program:
    others = [other for other in files if other != name]
    if not others and len(files) == 1:
        return find_file(name, arguments)
    other = others[0] if others else name
    if Path(other).suffix in {".yaml", ".yml", ".json"} or other.endswith(SUFFIX):
        raise CommandError(f"{name} and {other}: run one program at a time, and manifests without a program")
    raise CommandError(f"{other}: write the arguments of {name} after --: trainwright run {name} -- {' '.join(others)}")
