"""The flags of commands that take a Python program, and the arguments after `--` that belong to it."""

import difflib
import shlex
from collections.abc import Callable
from typing import Any, TypeVar

import click

from trainwright.cli.program.job import FRAMEWORKS
from trainwright.cli.program.source import SUFFIX

F = TypeVar("F", bound=Callable[..., Any])

_ARGUMENTS = "trainwright.program.arguments"


class ProgramCommand(click.Command):
    """Keeps the words after `--` apart, for the program: click would mix them with the files."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words, rest = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        ctx.meta[_ARGUMENTS] = tuple(rest)
        try:
            return super().parse_args(ctx, list(words))
        except click.NoSuchOption as error:
            first = next((at for at, word in enumerate(words) if word.startswith(error.option_name)), len(words))
            if rest or not any(word.endswith(SUFFIX) for word in words[:first]):
                raise
            line = shlex.join([*words[:first], "--", *words[first:]])
            near = difflib.get_close_matches(error.option_name, error.possibilities or (), n=1, cutoff=0.8)
            if near:
                hint = f"did you mean {near[0]}? (an argument of the program comes after --: {ctx.command_path} {line})"
            else:
                hint = f"if it is an argument of the program, write {ctx.command_path} {line}"
            raise click.UsageError(f"no such option {error.option_name}: {hint}", ctx) from error

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_usage(ctx.command_path, f"{' '.join(self.collect_usage_pieces(ctx))} [-- ARGUMENT…]")


def program_arguments() -> tuple[str, ...]:
    """The words after `--` of the command that is running."""
    arguments: tuple[str, ...] = click.get_current_context().meta.get(_ARGUMENTS, ())
    return arguments


def processes(text: str) -> str:
    """A number, or torchrun's `auto`, `gpu` and `cpu`."""
    if text in {"auto", "gpu", "cpu"} or (text.isdecimal() and 0 < int(text) < 10_000):
        return text
    raise click.BadParameter(f"{text!r}: write a number from 1 on, or auto (one per GPU, else one per core)")


def framework(text: str) -> str:
    """`pytorch` or `PyTorchJob`, in any letter case."""
    names = {name.lower(): name for name in FRAMEWORKS} | {kind.singular: name for name, kind in FRAMEWORKS.items()}
    if text.lower() not in names:
        raise click.BadParameter(f"{text!r}: write {', '.join(FRAMEWORKS)}, or the kind of the job")
    return names[text.lower()]


def program_flags(command: F) -> F:
    """The flags that describe the job of a program; `request.ProgramFlags` has their values."""
    decorators = (
        click.option(
            "-m", "--module", metavar="NAME", help="Run a module instead of a file, as `python -m package.module` does."
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1, max=10_000),
            metavar="N",
            help="Pods of the program, each with one process unless --nproc is given (default: 1).",
        ),
        click.option(
            "--nproc",
            type=processes,
            metavar="N|auto",
            help="Processes per pod, started by torchrun or mpirun; auto (torchrun): one per GPU, else one per core.",
        ),
        click.option("--gpus", type=click.IntRange(min=0), metavar="N", help="GPUs per pod (default: 0)."),
        click.option(
            "--framework",
            "--kind",
            "framework",
            type=framework,
            metavar="NAME",
            help=f"One of {', '.join(FRAMEWORKS)}, or the kind of its jobs (default: by what the program imports).",
        ),
        click.option(
            "--image",
            metavar="IMAGE",
            help="The image of the pods (default: the files of this machine).",
        ),
        click.option("--name", metavar="NAME", help="The name of the job (default: that of the program)."),
        click.option(
            "--mount",
            "mounts",
            multiple=True,
            metavar="SOURCE:/PATH[:ro]",
            help="Mount a file or directory of this machine, or a PersistentVolumeClaim; can be repeated.",
        ),
        click.option(
            "--host-network",
            is_flag=True,
            default=None,
            help="Give the pods the ports of their node instead of their own: two that listen on the same one cannot "
            "run on one node.",
        ),
        click.option(
            "--max-restarts",
            type=click.IntRange(min=0, max=1_000_000),
            metavar="N",
            help="How often all pods restart after one has failed (default: 1).",
        ),
    )
    for decorate in reversed(decorators):
        command = decorate(command)
    return command
