"""`trainwright image pull` and `push`."""

import asyncio
from contextlib import suppress

import click

from trainwright.cli.commands.images.store import (
    check_mirrors,
    complete_images,
    parse_name,
    size_text,
    store_command,
)
from trainwright.cli.errors import CommandError
from trainwright.cli.output.console import Console
from trainwright.cluster.images.blobs import DamagedImageError
from trainwright.cluster.images.formats import Platform
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.registry.credentials import DockerConfig
from trainwright.cluster.images.registry.progress import FINAL, LayerProgress
from trainwright.cluster.images.registry.pull import pull_image
from trainwright.cluster.images.registry.push import push_image
from trainwright.cluster.images.registry.settings import RegistrySettings
from trainwright.cluster.images.store import Image, ImageStore

plain_http_flag = click.option("--plain-http", is_flag=True, help="Reach the registry without encryption.")
"""Registries on this machine need no flag, as in Docker."""


@click.command(name="pull")
@click.argument("name", metavar="NAME[:TAG|@DIGEST]")
@click.option("--platform", metavar="OS/ARCH", help="The platform of the image (default: that of this machine).")
@click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    metavar="HOST",
    callback=check_mirrors,
    help="Ask this registry first; http://HOST is allowed.",
)
@plain_http_flag
@click.option("-q", "--quiet", is_flag=True, help="Only print the name.")
@store_command
def pull_command(
    store: ImageStore, name: str, platform: str | None, mirrors: tuple[str, ...], plain_http: bool, quiet: bool
) -> None:
    """Download an image from a registry.

    Every layer is verified by its digest; layers that are stored already are not downloaded. Credentials are those of
    `trainwright image login` and `docker login` (~/.docker/config.json, credential helpers included).
    """
    reference = parse_name(name)
    if ":" not in name.rpartition("/")[2] and not quiet:
        click.echo("Using default tag: latest")
    settings = RegistrySettings(
        mirrors={reference.registry: mirrors}, plain_http=frozenset([reference.registry] if plain_http else ())
    )
    console = Console.of()
    display = TransferDisplay(console, quiet=quiet)
    wanted = Platform.parse(platform) if platform else None
    before = None
    with suppress(DamagedImageError):  # the pull replaces it
        before = store.find(reference)
    if not quiet:
        click.echo(f"{reference.identifier}: Pulling from {reference.repository}")
    try:
        image = asyncio.run(
            pull_image(
                store,
                reference,
                platform=wanted,
                credentials=DockerConfig.of_user(),
                settings=settings,
                progress=display.report,
            )
        )
    finally:
        display.finish()
    if not quiet:
        is_new = before is None or before.descriptor.digest != image.descriptor.digest
        click.echo(f"Digest: {image.registry_digest}")
        what = "Downloaded newer image" if is_new else "Image is up to date"
        click.echo(f"Status: {what} for {reference.familiar}")
    click.echo(str(reference))


@click.command(name="push")
@click.argument("name", metavar="NAME[:TAG]", shell_complete=complete_images)
@click.option("-a", "--all-tags", is_flag=True, help="Upload all tags of the repository NAME.")
@plain_http_flag
@click.option("-q", "--quiet", is_flag=True, help="Only print the name.")
@store_command
def push_command(store: ImageStore, name: str, all_tags: bool, plain_http: bool, quiet: bool) -> None:
    """Upload an image to the registry that its name says.

    Layers that the registry has, also in another of its repositories, are not uploaded again.
    """
    reference = parse_name(name)
    if reference.digest:
        raise CommandError(
            f"cannot push {name}: a digest is not a name; give the image a tag with `trainwright image tag`"
        )
    has_tag = ":" in name.rpartition("/")[2]
    if all_tags and has_tag:
        raise CommandError(f"cannot push {name}: --all-tags is for a repository, without a tag")
    found = store.images() if all_tags else [store.find(reference)]
    images = [
        (image, image.reference)
        for image in found
        if image and image.reference and image.reference.name == reference.name
    ]
    if not images:
        raise CommandError(
            f"An image does not exist locally with the tag: {reference.familiar_name}:{reference.tag}; "
            f"`trainwright image tag IMAGE {reference.familiar}` gives one that name"
        )
    if not quiet and not all_tags and not has_tag:
        click.echo("Using default tag: latest")
    if not quiet:
        click.echo(f"The push refers to repository [{reference.name}]")
    settings = RegistrySettings(plain_http=frozenset([reference.registry] if plain_http else ()))
    for image, tagged in images:
        if tagged.tag and not tagged.digest:
            _push(store, image, tagged, settings, quiet=quiet)


def _push(
    store: ImageStore, image: Image, reference: ImageReference, settings: RegistrySettings, *, quiet: bool
) -> None:
    if image.config.uses_host_files:
        click.echo(
            f"Warning: {reference.familiar} lies over the files of this machine: it has no system of its own, and does "
            "not run on Kubernetes. `trainwright image build --strict` needs the base image",
            err=True,
        )
    display = TransferDisplay(Console.of(), quiet=quiet)
    try:
        pushed = asyncio.run(
            push_image(
                store,
                image,
                reference,
                credentials=DockerConfig.of_user(),
                settings=settings,
                progress=display.report,
            )
        )
    finally:
        display.finish()
    click.echo(str(reference) if quiet else f"{reference.tag}: digest: {pushed.digest} size: {pushed.size}")


_BAR = 30


class TransferDisplay:
    def __init__(self, console: Console, *, quiet: bool = False) -> None:
        self._console = console
        self._quiet = quiet
        self._layers: dict[str, LayerProgress] = {}

    def report(self, progress: LayerProgress) -> None:
        if self._quiet:
            return
        self._layers[progress.id] = progress
        if progress.state in FINAL and not self._console.tty:
            self._console.print(_line(progress))
        elif self._console.tty:
            # What is above the visible part of the terminal cannot be drawn again.
            lines = [_line(layer) for layer in self._layers.values()]
            self._console.live(*lines[-(self._console.height - 1) :])

    def finish(self) -> None:
        """Leaves the last state on the terminal."""
        if self._console.tty and self._layers:
            self._console.live()
            for layer in self._layers.values():
                self._console.print(_line(layer))


def _line(progress: LayerProgress) -> str:
    text = f"{progress.id}: {progress.state}"
    if progress.source:
        text += f" {progress.source}"
    if progress.state in {"Downloading", "Pushing"} and progress.total:
        done = min(progress.done / progress.total, 1.0)
        bar = "=" * int(done * _BAR) + ">"
        text += f"  [{bar:<{_BAR + 1}}]  {size_text(progress.done)}/{size_text(progress.total)}"
    return text
