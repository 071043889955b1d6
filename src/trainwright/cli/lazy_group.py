"""A group that lists its commands without importing them, so that the command line starts fast."""

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """Imports the module of a command when the command is called. Subclasses say where it is."""

    texts: Mapping[str, str] = {}
    """What `--help` says about each command."""
    aliases: Mapping[str, str] = {}

    def place(self, name: str) -> tuple[str, str]:
        """The module below `trainwright.cli.commands` that defines the command, and the name of its variable."""
        raise NotImplementedError

    def suggestion(self, name: str) -> str | None:
        """The words to type instead of an unknown command."""
        import difflib

        return next(iter(difflib.get_close_matches(name, self.texts, n=1)), None)

    def list_commands(self, ctx: click.Context) -> list[str]:
        _ = ctx
        return list(self.texts)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        _ = ctx
        name = self.aliases.get(cmd_name, cmd_name)
        if name not in self.texts:
            return None
        module, variable = self.place(name)
        command = getattr(importlib.import_module(f"trainwright.cli.commands.{module}"), variable)
        assert isinstance(command, click.Command)  # noqa: S101 (for the type checker)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in {*self.texts, *self.aliases}:
            near = self.suggestion(args[0])
            hint = f"did you mean `{near}`?" if near else f"available commands: {', '.join(self.texts)}"
            ctx.fail(f"unknown command {args[0]!r}: {hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Without importing the commands."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=text) for name, text in self.texts.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]
