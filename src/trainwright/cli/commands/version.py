"""`trainwright version`: ours, and on request the cluster's."""

from pathlib import Path

import click

from trainwright import __version__
from trainwright.cli.flags import target_flags


@click.command(name="version")
@click.option("--server", is_flag=True, help="Also the version of the cluster that commands mean.")
@target_flags
def command(server: bool, context: str | None, kubeconfig: Path | None, data_dir: Path | None) -> None:
    """Print the version."""
    click.echo(f"trainwright {__version__}")
    if server:
        click.echo(_of_server(context, kubeconfig, data_dir))


def _of_server(context: str | None, kubeconfig: Path | None, data_dir: Path | None) -> str:
    # Imported here: the plain question is answered without any of it.
    import msgspec

    from trainwright.cli.errors import problems_reported
    from trainwright.cli.targets import TargetOptions, find_target
    from trainwright.kube.client.sync_client import SyncClient

    target = find_target(TargetOptions(context, kubeconfig, data_dir))
    with problems_reported(target.name), SyncClient(target.config) as client:
        answer = msgspec.json.decode(client.raw("GET", "/version"))
    return f"{target.name}: {answer.get('gitVersion', 'unknown')}"
