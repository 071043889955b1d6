"""`trainwright image pull`, `push`, `login` and `logout`: credentials are in Docker's own files, for Docker too."""

import asyncio
import sys
from contextlib import suppress

import click

from trainwright.cli.commands.images.store import (
    check_mirrors,
    complete_images,
    parse_name,
    report_image_errors,
    size_text,
    store_command,
)
from trainwright.cli.errors import CommandError
from trainwright.cli.output.console import Console
from trainwright.cluster.images.blobs import DamagedImageError
from trainwright.cluster.images.formats import Platform
from trainwright.cluster.images.reference import DEFAULT_REGISTRY, ImageReference
from trainwright.cluster.images.registry.client import check_credential
from trainwright.cluster.images.registry.credentials import Credential, DockerConfig, server_key
from trainwright.cluster.images.registry.pull import pull_image
from trainwright.cluster.images.registry.push import push_image
from trainwright.cluster.images.registry.settings import FINAL, LayerProgress, RegistrySettings
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


@click.command(name="login")
@click.argument("server", default=DEFAULT_REGISTRY, metavar="[SERVER]")
@click.option("-u", "--username", metavar="NAME", help="Asked for if it is not given.")
@click.option(
    "-p", "--password", metavar="PASSWORD", help="Others see it in the list of processes: --password-stdin is safer."
)
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input.")
@plain_http_flag
def login_command(
    server: str, username: str | None, password: str | None, password_stdin: bool, plain_http: bool
) -> None:
    """Check the credentials of a registry and store them in ~/.docker/config.json.

    SERVER is docker.io if it is not given. With a credential helper in config.json, the helper stores them.
    """
    if password is not None and password_stdin:
        raise CommandError("--password and --password-stdin are mutually exclusive")
    if password_stdin and not username:
        raise CommandError("must provide --username with --password-stdin")
    server = _host(server)
    if not username:
        username = _ask("Username", hidden=False)
    if password_stdin:
        password = sys.stdin.read().rstrip("\r\n")
    elif password is None:
        password = _ask("Password", hidden=sys.stdin.isatty())
    credential = Credential(str(username), str(password))
    settings = RegistrySettings(plain_http=frozenset([server] if plain_http else ()))
    with report_image_errors():
        config = DockerConfig.of_user()
        asyncio.run(check_credential(server, credential, settings))
        place = config.set(server, credential)
    if place.endswith(".json"):
        click.echo(f"The password is stored unencrypted in {place}; a credential helper would encrypt it.", err=True)
    click.echo("Login Succeeded")


@click.command(name="logout")
@click.argument("server", default=DEFAULT_REGISTRY, metavar="[SERVER]")
def logout_command(server: str) -> None:
    """Remove the credentials of a registry."""
    server = _host(server)
    with report_image_errors():
        removed = DockerConfig.of_user().remove(server)
    if removed:
        click.echo(f"Removing login credentials for {server_key(server)}")
    else:
        click.echo(f"Not logged in to {server_key(server)}")


def _ask(what: str, *, hidden: bool) -> str:
    try:
        return str(click.prompt(what, hide_input=hidden, err=True))
    except click.Abort as error:
        if sys.stdin.isatty():
            raise
        text = "standard input has no username and password: use --username with --password-stdin"
        raise CommandError(text) from error


def _host(server: str) -> str:
    """`https://HOST/v1/` is HOST."""
    return server.rpartition("://")[2].partition("/")[0]
