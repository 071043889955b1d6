"""`trainwright image`: the group, which imports a command's module when the command is called."""

import click

from trainwright.cli.lazy_group import LazyGroup

COMMANDS = {
    "build": ("build", "Build an image from a Dockerfile."),
    "ls": ("listing", "List images."),
    "inspect": ("listing", "Show all that is known about images."),
    "history": ("listing", "Show the layers of an image and what made them."),
    "tag": ("names", "Give an image another name."),
    "rm": ("names", "Remove images."),
    "prune": ("disk", "Remove images that have no name, or that no pod uses."),
    "df": ("disk", "Show the disk space of images."),
    "pull": ("registries", "Download an image from a registry."),
    "push": ("registries", "Upload an image to a registry."),
    "login": ("registries", "Store the credentials of a registry."),
    "logout": ("registries", "Remove the credentials of a registry."),
    "map": ("names", "Say what image names mean on this machine."),
    "save": ("archives", "Write images into an archive, which `docker load` reads too."),
    "load": ("archives", "Load images from an archive of `docker save`, podman or OCI."),
}
"""The module in this package that defines each, and what `--help` says about it."""
ALIASES = {"list": "ls", "images": "ls", "remove": "rm", "rmi": "rm", "delete": "rm"}
"""Docker's and podman's words for the same."""


_ELSEWHERE = {
    "run": "trainwright run --image NAME PROGRAM",
    "ps": "trainwright ps",
    "logs": "trainwright logs JOB",
    "exec": "kubectl exec -it POD -- sh",
    "cp": "trainwright cp",
    "import": "load",
    "export": "save",
    "buildx": "build",
    "system": "df",
}
"""What does the work of Docker's other commands."""


class ImageGroup(LazyGroup):
    texts = {name: text for name, (_, text) in COMMANDS.items()}  # noqa: RUF012
    aliases = ALIASES

    def place(self, name: str) -> tuple[str, str]:
        return f"images.{COMMANDS[name][0]}", f"{name}_command"

    def suggestion(self, name: str) -> str | None:
        return _ELSEWHERE.get(name) or super().suggestion(name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _ = ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(self.texts.items()))


@click.group(name="image", cls=ImageGroup)
def command() -> None:
    """Build, list, pull, push, save and load images.

    No Docker is needed: the commands and their flags are Docker's, as far as they make sense without a daemon. All
    clusters of a user share one store of images; a cluster with --data-dir has its own. NAME is read as Docker reads
    it: python:3.11 is docker.io/library/python:3.11.
    """
