"""`trainwright init`: writes a commented manifest for a program, to edit and run."""

import os
import re
import shlex
from pathlib import Path
from typing import Any

import click
import yaml

from trainwright.api.kinds import KINDS
from trainwright.cli.errors import CommandError
from trainwright.cli.program.flags import ProgramCommand, program_arguments, program_flags
from trainwright.cli.program.job import FRAMEWORKS
from trainwright.cli.program.request import ProgramFlags, local_job
from trainwright.cli.program.source import Program, find_file, find_module, guess_framework
from trainwright.objects import Object

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
    guess = guess_framework(found, given.framework)
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


# The manifest

_COMMENTS = {
    "trainwright.dev/restart-scope": "If one pod fails, all restart: a rank cannot rejoin the others of its group.",
    "backoffLimit": "After so many failures the job fails; 0: at the first one.",
    "nprocPerNode": "Processes per pod, started by torchrun.",
    "slotsPerWorker": "Processes per worker.",
    "successPolicy": "Otherwise the job ends as soon as worker 0 has finished.",
    "Master": "Rank 0. It decides when the job has succeeded.",
    "Launcher": "Runs mpirun, which starts the program in the workers. It decides when the job has succeeded.",
    "Worker": "The other ranks.",
    "restartPolicy": "OnFailure: restart; ExitCode: restart only if a signal ended it; Never: the job fails.",
    "image": "trainwright/host: the files and the Python of this machine. Other clusters need an image.",
    "command": "In the directory of this file.",
    "env": "Secrets do not belong here: `trainwright run --env NAME` passes them.",
}
"""By key, for its first occurrence."""
_GPU = ("# resources:", "#   limits: {nvidia.com/gpu: 1}")
_MOUNT = ("# volumeMounts:", "#   - {name: models, mountPath: /models}")
_VOLUME = ("# volumes:", "#   - {name: models, persistentVolumeClaim: {claimName: models}}")
_KEY = re.compile(r"(?P<indent> *)(?P<item>- )?(?P<key>[\w./-]+):")


def commented_manifest(job: Object, *, title: str) -> str:
    """The job as YAML. `title` is its first line."""
    kind = KINDS[job["kind"]]
    pods = [role.child_name("NAME", 0) for role in kind.roles if role.name in job["spec"][kind.replicas_field]]
    comments = {"name": f"Also the name of its pods: {', '.join(pods)} …", **_COMMENTS}
    text = yaml.safe_dump(job)
    if "Launcher" in text:
        comments["Worker"] = "They wait for mpirun, and have no command."
    elif "Master" not in text:
        comments["Worker"] = "All ranks."
    lines = [f"# {title}", "# Reference: docs/reference/jobs.md; `trainwright run FILE --dry-run` checks it."]
    for line in yaml.dump(job, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000).splitlines():
        match = _KEY.match(line)
        if match and (comment := comments.pop(match["key"], None)):
            lines.append(f"{match['indent']}# {comment}")
        lines.append(line)
    return "\n".join(_with_options(lines)) + "\n"


def _with_options(lines: list[str]) -> list[str]:
    """Adds what many jobs need, as comments, to the first container."""
    start = next(at for at, line in enumerate(lines) if line.lstrip().startswith("containers:"))
    indent = len(lines[start]) - len(lines[start].lstrip())
    rest = range(start + 1, len(lines))
    end = next((at for at in rest if len(lines[at]) - len(lines[at].lstrip()) <= indent), len(lines))
    present = "".join(lines)
    inner = [*(() if "resources:" in present else _GPU), *(() if "volumes:" in present else _MOUNT)]
    outer = () if "volumes:" in present else _VOLUME
    added = [f"{' ' * (indent + 4)}{line}" for line in inner] + [f"{' ' * indent}{line}" for line in outer]
    return [*lines[:end], *added, *lines[end:]]


class _Dumper(yaml.SafeDumper):
    """Indents lists below their key and writes commands in one line."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        _ = indentless
        super().increase_indent(flow, indentless=False)


def _represent_list(dumper: yaml.SafeDumper, items: list[object]) -> yaml.Node:
    words = all(isinstance(item, str) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=words)


_Dumper.add_representer(list, _represent_list)
