"""Flags that several commands have, types of flag values, and the flag syntax of Go programs."""

import functools
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


# Which cluster


class TargetOptions(NamedTuple):
    """The flags that select the target; None: not given."""

    context: str | None = None
    kubeconfig: Path | None = None
    data_dir: Path | None = None


def target_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the flags of every command that talks to a cluster, and passes them as `options`, for `find_target`."""

    @functools.wraps(command)
    def with_options(*args: Any, **values: Any) -> Any:
        return command(*args, options=TargetOptions(*map(values.pop, TargetOptions._fields)), **values)

    decorators = (
        click.option("--context", metavar="NAME", help="Use this context of your kubeconfig."),
        click.option(
            "--kubeconfig",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Use this kubeconfig file instead of $KUBECONFIG or ~/.kube/config.",
        ),
        data_dir_flag,
    )
    decorated: Callable[..., Any] = with_options
    for decorate in reversed(decorators):
        decorated = decorate(decorated)
    return decorated


def data_dir_flag(command: F) -> F:
    """--data-dir, and --cluster NAME, which stands for a directory: both set `data_dir`."""
    command = click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        is_eager=True,  # known when --cluster is read
        help="The embedded cluster's directory (default: $XDG_DATA_HOME/trainwright or ~/.local/share/trainwright).",
    )(command)
    return click.option(
        "--cluster",
        metavar="NAME",
        expose_value=False,
        callback=_select_cluster,
        help="Use the embedded cluster with this name and context trainwright-NAME (default: the one without a name).",
    )(command)


def _select_cluster(ctx: click.Context, parameter: click.Parameter, name: str | None) -> None:
    if name is None:
        return
    if ctx.params.get("data_dir") is not None:
        raise click.BadParameter("cannot be combined with --data-dir", ctx, parameter)
    if not _CLUSTER_NAME.fullmatch(name):
        raise click.BadParameter(f"{name!r}: write small letters, digits and dashes, such as dev-1", ctx, parameter)
    from trainwright.cluster.facade import DataDir

    ctx.params["data_dir"] = DataDir.of_cluster(name).path


# Values

_CLUSTER_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_DURATION = re.compile(rf"(?:(?P<h>{_NUMBER})h)?(?:(?P<m>{_NUMBER})m)?(?:(?P<s>{_NUMBER})s)?(?:(?P<ms>{_NUMBER})ms)?")


def duration(text: str) -> float:
    """Seconds of `90`, `90s`, `5m`, `1h30m` or `500ms`."""
    if re.fullmatch(_NUMBER, text):
        return float(text)
    match = _DURATION.fullmatch(text)
    if not match or not text:
        raise click.BadParameter(f"{text!r} is not a duration: write 90, 90s, 5m, 1h30m or 500ms")
    hours, minutes, seconds, milliseconds = (float(match[unit] or 0) for unit in ("h", "m", "s", "ms"))
    return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000


def python_path(text: str) -> Path:
    """The absolute path of an executable. Symlinks are kept: a virtual environment's Python is one."""
    path = Path(text).expanduser().absolute()
    try:
        is_file = path.is_file()
    except PermissionError as error:
        raise click.BadParameter(
            f"{path} is in a directory that you may not enter: give the path of a Python, such as .venv/bin/python"
        ) from error
    if not is_file:
        raise click.BadParameter(f"{path} does not exist: give the path of a Python, such as .venv/bin/python")
    if not os.access(path, os.X_OK):
        raise click.BadParameter(f"{path} is not executable: give the path of a Python, such as .venv/bin/python")
    return path


# Go's syntax, so that the arguments of a training-operator Deployment work unchanged


class GoCommand(click.Command):
    """A command whose long flags may begin with one dash: `-leader-elect`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        long = {name for parameter in self.get_params(ctx) for name in parameter.opts if name.startswith("--")}
        return super().parse_args(ctx, [f"-{word}" if f"-{word.partition('=')[0]}" in long else word for word in args])


def bool_flag(name: str, *, default: bool | None, help: str) -> Callable[[F], F]:  # noqa: A002 (click's own name)
    """A flag with an optional value: `--x`, `--x=true`, `--x=false`."""
    return click.option(
        name, type=click.BOOL, is_flag=False, flag_value="true", default=default, metavar="[=true|false]", help=help
    )
