"""`trainwright image login` and `logout`: credentials in Docker's own files, so that Docker has them too."""

import asyncio
import sys

import click

from trainwright.cli.commands.images.registries import plain_http_flag
from trainwright.cli.commands.images.store import report_image_errors
from trainwright.cli.errors import CommandError
from trainwright.cluster.images.reference import DEFAULT_REGISTRY
from trainwright.cluster.images.registry.client import check_credential
from trainwright.cluster.images.registry.credentials import Credential, DockerConfig, server_key
from trainwright.cluster.images.registry.settings import RegistrySettings


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
