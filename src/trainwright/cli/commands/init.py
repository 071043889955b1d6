"""`trainwright init`: writes a commented manifest for a program, to edit and run."""

import os
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from trainwright.cli.errors import CommandError
from trainwright.cli.program.flags import ProgramCommand, program_arguments, program_flags
from trainwright.cli.program.job import FRAMEWORKS
from trainwright.cli.program.request import ProgramFlags, local_job
from trainwright.cli.program.source import Program, find_file, find_module, guess_framework
from trainwright.cli.program.template import commented_manifest

_STDOUT = "-"


@click.command(name="init", cls=ProgramCommand)
@click.argument("program", required=False, metavar="[PROGRAM]")
@program_flags
@click.option(
    "-o",
    "--output",
    default="job.yaml",
    metavar="FILE",
    help="The file to write, - for standard output (default: job.yaml).",
)
@click.option("--force", is_flag=True, help="Overwrite the file if it exists.")
def command(program: str | None, module: str | None, output: str, force: bool, **flags: Any) -> None:
    """Write a manifest to start from.

    \b
      trainwright init train.py --workers 4 -- --epochs 3
      trainwright run job.yaml

    The job runs PROGRAM, by default train.py, which need not exist yet.
    """
    file = Path(output)
    if output != _STDOUT and file.is_dir():
        raise CommandError(f"{output} is a directory: name a file in it, such as {file / 'job.yaml'}")
    if output != _STDOUT and file.exists() and not force:
        raise CommandError(f"{output} exists: overwrite it with --force, or write another file with -o FILE")
    directory = Path.cwd() if output == _STDOUT else file.absolute().parent
    found = _program(program, module)
    given = ProgramFlags(**flags)
    guess = guess_framework(found)
    if given.framework:
        guess = replace(guess, framework=given.framework)
    script = found.name if found.is_module or found.file is None else os.path.relpath(found.file, directory)
    job = local_job(found, given, guess, script=script)
    kind = FRAMEWORKS[guess.framework].with_article
    text = commented_manifest(job, title=f"A{kind[1:]} that runs {found.name}: trainwright run {_shown(output)}")
    if output == _STDOUT:
        click.echo(text, nl=False)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"failed to write {output}: {error.strerror}") from error
    click.echo(f"{output} created with {kind}; edit it, then: trainwright run {_shown(output)}")


def _program(name: str | None, module: str | None) -> Program:
    arguments = program_arguments()
    if module:
        if name:
            raise CommandError(f"-m {module} and {name}: name one of them; the module's own arguments follow --")
        return find_module(module, Path.cwd(), arguments)
    if name:
        return find_file(name, arguments)
    return Program("train.py", Path.cwd(), None, arguments=arguments)


def _shown(output: str) -> str:
    return "job.yaml" if output == _STDOUT else shlex.quote(output)
