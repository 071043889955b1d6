"""`trainwright version`: prints the version of this program and optionally that of the cluster."""

import click

from trainwright import __version__
from trainwright.cli.flags import TargetOptions, target_flags


@click.command(name="version")
@click.option("--server", is_flag=True, help="Also print the version of the cluster.")
@target_flags
def command(server: bool, options: TargetOptions) -> None:
    """Print the version."""
    click.echo(f"trainwright {__version__}")
    if server:
        click.echo(_server_version(options))


def _server_version(options: TargetOptions) -> str:
    # Imported here because `trainwright version` alone needs none of it.
    import msgspec

    from trainwright.cli.errors import report_errors
    from trainwright.cli.targets import find_target
    from trainwright.kube.client.sync_client import SyncClient

    target = find_target(options)
    with report_errors(target.name), SyncClient(target.config) as client:
        answer = msgspec.json.decode(client.raw("GET", "/version"))
    return f"{target.name}: {answer.get('gitVersion', 'unknown')}"
