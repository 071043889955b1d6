"""Flags as Go programs spell them, so that the arguments of a training-operator Deployment work as they stand.

Go takes one dash for two (`-leader-elect`), and a switch with or without a value (`--leader-elect=false`).
"""

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class GoFlags(click.Command):
    """A command whose long options may begin with one dash."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        long = {name for parameter in self.get_params(ctx) for name in parameter.opts if name.startswith("--")}
        return super().parse_args(ctx, [f"-{word}" if f"-{word.partition('=')[0]}" in long else word for word in args])


def switch(name: str, *, default: bool | None, help: str) -> Callable[[F], F]:  # noqa: A002 (click's own name)
    """An option that is on when it is given, and that may say so: `--x`, `--x=true`, `--x=false`."""
    return click.option(
        name, type=click.BOOL, is_flag=False, flag_value="true", default=default, metavar="[=true|false]", help=help
    )
