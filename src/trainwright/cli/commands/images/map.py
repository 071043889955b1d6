"""`trainwright image map`."""

import os
from pathlib import Path

import click

from trainwright.cli.commands.images.store import parse_name, store_command
from trainwright.cli.errors import CommandError
from trainwright.cli.output.tables import table_lines
from trainwright.cluster.images.mappings import ImageMapping, ImageMappings
from trainwright.cluster.images.store import ImageStore


@click.command(name="map")
@click.argument("pattern", required=False)
@click.option("--python", metavar="PATH", help="Run pods with such an image on this machine's files with this Python.")
@click.option("--image", metavar="NAME", help="Use this image in its place.")
@click.option("--remove", is_flag=True, help="Remove the mapping.")
@store_command
def map_command(store: ImageStore, pattern: str | None, python: str | None, image: str | None, remove: bool) -> None:
    """Say what image names mean on this machine; without PATTERN, list the mappings.

    \b
      trainwright image map 'registry.example.com/team/*' --python .venv/bin/python
      trainwright image map pytorch/pytorch --image my-pytorch:2

    PATTERN is the name of an image, without a tag for all tags; `*` stands for any characters. A name without `*`
    takes precedence over patterns, and a later mapping over an earlier one. It holds for pods that start afterwards.
    """
    mappings = ImageMappings(store.directory)
    if pattern is None:
        if python or image or remove:
            raise click.UsageError("PATTERN is missing: the name of an image")
        _list(mappings.all())
    elif remove:
        if not mappings.remove(pattern):
            raise CommandError(f"{pattern!r} is not mapped: `trainwright image map` lists what is")
        click.echo(f"{pattern} is no longer mapped")
    elif bool(python) == bool(image):
        raise click.UsageError("say what it means by either --python or --image")
    elif image:
        mappings.add(ImageMapping(pattern=pattern, image=parse_name(image).familiar))
        click.echo(f"{pattern} -> image {parse_name(image).familiar}")
    else:
        path = _python_path(python or "")
        mappings.add(ImageMapping(pattern=pattern, python=path))
        click.echo(f"{pattern} -> this machine's files with Python {path}")


def _python_path(text: str) -> str:
    path = Path(text).expanduser().absolute()  # links stay: that of a virtual environment leads out of it
    if not os.access(path, os.X_OK) or path.is_dir():
        raise CommandError(f"--python {text}: not a program that can be executed")
    return str(path)


def _list(mappings: list[ImageMapping]) -> None:
    if not mappings:
        click.echo("No image names are mapped.")
        return
    rows = [[mapping.pattern, mapping.image or "<this machine's files>", mapping.python] for mapping in mappings]
    for line in table_lines(["PATTERN", "IMAGE", "PYTHON"], rows):
        click.echo(line)
