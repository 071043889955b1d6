"""`trainwright image save` and `load`."""

import os
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

import click

from trainwright.cli.commands.images.store import complete_images, find_image, report_image_errors, store_command
from trainwright.cli.errors import CommandError
from trainwright.cluster.images.archives import load_archive, save_archive
from trainwright.cluster.images.formats import Platform
from trainwright.cluster.images.store import Image, ImageStore


@click.command(name="save")
@click.argument("names", nargs=-1, required=True, metavar="IMAGE…", shell_complete=complete_images)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The file (default: standard output)."
)
@store_command
def save_command(store: ImageStore, names: tuple[str, ...], output: Path | None) -> None:
    """Write images into an archive, which `docker load` reads too.

    It is an OCI layout and an archive of `docker save` at once: docker, podman, skopeo and containerd read it.
    """
    images = [find_image(store, name) for name in names]
    if output is None:
        if sys.stdout.isatty():
            raise CommandError("refusing to write an archive to a terminal: use --output FILE or redirect")
        _save(store, images, sys.stdout.buffer, "standard output")
        return
    try:
        # A file that is replaced by an unfinished archive would be lost.
        with tempfile.NamedTemporaryFile(dir=output.absolute().parent, prefix=f".{output.name}.", delete=False) as file:
            try:
                _save(store, images, file, output)  # type: ignore[arg-type]
                umask = os.umask(0)
                os.umask(umask)
                os.fchmod(file.fileno(), 0o666 & ~umask)
                Path(file.name).replace(output)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise CommandError(f"cannot write {output}: {error.strerror or error}") from error


def _save(store: ImageStore, images: list[Image], file: BinaryIO, target: Path | str) -> None:
    with report_image_errors():
        try:
            save_archive(store, images, file)
            file.flush()
        except OSError as error:
            if error.filename is not None:  # a file of the store
                raise
            raise CommandError(f"cannot write {target}: {error.strerror or error}") from error


@click.command(name="load")
@click.option("-i", "--input", "source", type=click.Path(path_type=Path), help="The file (default: standard input).")
@click.option(
    "--platform", metavar="OS/ARCH", help="Of an image for several platforms (default: that of this machine)."
)
@click.option("-q", "--quiet", is_flag=True, help="Do not print the names.")
@store_command
def load_command(store: ImageStore, source: Path | None, platform: str | None, quiet: bool) -> None:
    """Load images from an archive of `docker save`, podman or OCI.

    The archive may be compressed with gzip or zstd. After an error nothing of it remains.
    """
    if source is None and sys.stdin.isatty():
        raise CommandError("requested load from a terminal: use --input FILE or redirect, as in `docker save NAME |`")
    wanted = Platform.parse(platform) if platform else None
    try:
        if source is None:
            images = load_archive(store, sys.stdin.buffer, platform=wanted)
        else:
            with source.open("rb") as file:
                images = load_archive(store, file, platform=wanted)
    except OSError as error:
        raise CommandError(f"cannot read {source or 'standard input'}: {error.strerror or error}") from error
    for image in images if not quiet else ():
        if image.reference:
            click.echo(f"Loaded image: {image.reference.familiar}")
        else:
            click.echo(f"Loaded image ID: {image.id}")
