"""What `run` was asked to run: one program, or manifests."""

from dataclasses import dataclass, field
from pathlib import Path

import click

from trainwright.cli.errors import CommandError
from trainwright.cli.manifests.reader import Document, read_manifests
from trainwright.cli.program.request import ProgramFlags
from trainwright.cli.program.source import SUFFIX, Program, find_file, find_module


@dataclass(frozen=True, slots=True)
class Inputs:
    words: tuple[str, ...]
    """As the user wrote them."""
    program: Program | None = None
    documents: list[Document] = field(default_factory=list)


def read_inputs(
    files: tuple[str, ...],
    module: str | None,
    arguments: tuple[str, ...],
    flags: ProgramFlags,
    *,
    workdir: Path | None = None,
) -> Inputs:
    """`arguments` are the words after `--`."""
    if not files and not module:
        files, arguments = arguments, ()  # `run -- job.yaml`
    if module:
        if files:
            raise CommandError(f"-m {module} and {files[0]}: run one of them; the module's own arguments follow --")
        return Inputs(("-m", module), find_module(module, (workdir or Path.cwd()).absolute(), arguments))
    if not files:
        raise click.UsageError("name a program (train.py) or a manifest (job.yaml)")
    programs = [name for name in files if name.endswith(SUFFIX)]
    if programs:
        return Inputs(files, _only_program(programs[0], files, arguments))
    if arguments:
        raise CommandError(f"{' '.join(arguments)}: arguments after -- are for a program, and {files[0]} is a manifest")
    if given := flags.given():
        raise CommandError(f"{given[0]} is for programs such as train.py: in a manifest, edit {files[0]} instead")
    return Inputs(files, documents=read_manifests(files))


def _only_program(name: str, files: tuple[str, ...], arguments: tuple[str, ...]) -> Program:
    others = [other for other in files if other != name]
    if not others and len(files) == 1:
        return find_file(name, arguments)
    other = others[0] if others else name
    if Path(other).suffix in {".yaml", ".yml", ".json"} or other.endswith(SUFFIX):
        raise CommandError(f"{name} and {other}: run one program at a time, and manifests without a program")
    raise CommandError(f"{other}: write the arguments of {name} after --: trainwright run {name} -- {' '.join(others)}")
