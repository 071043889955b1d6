"""`trainwright image`: the group, which imports a command's module when the command is called."""

import importlib
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "build": ("build", "Build an image from a Dockerfile."),
    "ls": ("listing", "List images."),
    "inspect": ("inspect", "Show all that is known about images."),
    "history": ("listing", "Show the layers of an image and what made them."),
    "tag": ("names", "Give an image another name."),
    "rm": ("names", "Remove images."),
    "prune": ("disk", "Remove images that have no name, or that no pod uses."),
    "df": ("disk", "Show the disk space of images."),
    "pull": ("registries", "Download an image from a registry."),
    "push": ("registries", "Upload an image to a registry."),
    "login": ("login", "Store the credentials of a registry."),
    "logout": ("login", "Remove the credentials of a registry."),
    "map": ("map", "Say what image names mean on this machine."),
    "save": ("archives", "Write images into an archive, which `docker load` reads too."),
    "load": ("archives", "Load images from an archive of `docker save`, podman or OCI."),
}
"""The module in this package that defines each, and what `--help` says about it."""
ALIASES = {"list": "ls", "images": "ls", "remove": "rm", "rmi": "rm", "delete": "rm"}
"""Docker's and podman's words for the same."""


class ImageGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        _ = ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        _ = ctx
        name = ALIASES.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"trainwright.cli.commands.images.{COMMANDS[name][0]}")
        command = getattr(module, f"{name}_command")
        assert isinstance(command, click.Command)  # noqa: S101 (for the type checker)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in {*COMMANDS, *ALIASES}:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"available commands: {', '.join(COMMANDS)}"
            ctx.fail(f"unknown command {args[0]!r}: {hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem]":
        """Without importing the commands."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=text) for name, (_, text) in COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _ = ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.group(name="image", cls=ImageGroup)
def command() -> None:
    """Build, list, pull, push, save and load images.

    No Docker is needed: the commands and their flags are Docker's, as far as they make sense without a daemon. All
    clusters of a user share one store of images; a cluster with --data-dir has its own. NAME is read as Docker reads
    it: python:3.11 is docker.io/library/python:3.11.
    """
