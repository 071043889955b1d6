"""`trainwright down`: stops the embedded cluster and its pods; --purge deletes its data."""

import sys
from pathlib import Path

import click

from trainwright.cli.commands.up import user_kubeconfig
from trainwright.cli.errors import CommandError
from trainwright.cli.flags import data_dir_flag
from trainwright.cli.targets import data_dir_at
from trainwright.cluster.embedded import (
    CONTEXT,
    ClusterError,
    ClusterRecord,
    DataDir,
    delete_data,
    kill_pods,
    stop_cluster,
)
from trainwright.kube.client.kubeconfig import ConfigError, load_kubeconfig, remove_from_kubeconfig


@click.command(name="down")
@data_dir_flag
@click.option("--keep-pods", is_flag=True, help="Leave the pods running; the next `up` adopts them.")
@click.option("--purge", is_flag=True, help="Also delete the data directory with all objects, volumes and models.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
def command(data_dir: Path | None, keep_pods: bool, purge: bool, yes: bool) -> None:
    """Stop the embedded cluster and its pods.

    Objects are kept for the next `up`. Pods that were running are then restarted according to their restart policy, as
    after a reboot of the node.
    """
    if purge and keep_pods:
        raise CommandError("--purge cannot be combined with --keep-pods: it deletes the volumes of the pods")
    data = data_dir_at(data_dir)
    if purge and not yes:
        _confirm(data)
    record = data.running()
    click.echo(f"→ embedded cluster {'at ' + record.server if record else 'in ' + str(data.path)}", err=True)
    try:
        stopped = stop_cluster(data)
    except ClusterError as error:
        raise CommandError(str(error)) from error
    killed = None if keep_pods else kill_pods(data)
    click.echo(summary(data, stopped=stopped, killed=killed))
    if purge:
        _purge(data, record)


def summary(data: DataDir, *, stopped: bool, killed: int | None) -> str:
    """`killed`: how many pods were killed; None if they were kept."""
    done = "Stopped the cluster" if stopped else f"No cluster was running in {data.path}"
    if killed is None:
        return f"{done}; its pods keep running, `trainwright up` adopts them"
    return f"{done}; killed {killed} pod{'' if killed == 1 else 's'}" if killed else f"{done}; no pods were running"


def _confirm(data: DataDir) -> None:
    _check_data_dir(data)
    if not sys.stdin.isatty():
        raise CommandError(f"--purge deletes {data.path}: confirm it with --yes, standard input is not a terminal")
    click.confirm(f"Delete {data.path} with all objects, volumes and models in it?", abort=True)


def _check_data_dir(data: DataDir) -> None:
    if not (data.path / "format").exists():
        raise CommandError(f"{data.path} is not a data directory of trainwright: nothing was deleted")


def _purge(data: DataDir, record: ClusterRecord | None) -> None:
    _check_data_dir(data)
    kubeconfig = Path(record.kubeconfig) if record else user_kubeconfig(None)
    _remove_context(data, kubeconfig)
    try:
        delete_data(data)
    except ClusterError as error:
        raise CommandError(str(error)) from error
    click.echo(f"Deleted {data.path}")


def _remove_context(data: DataDir, kubeconfig: Path) -> None:
    """Removes our context from the user's kubeconfig, unless it belongs to another embedded cluster."""
    try:
        ours, theirs = (load_kubeconfig(file, context=CONTEXT) for file in (data.kubeconfig, kubeconfig))
        if ours.token == theirs.token:
            remove_from_kubeconfig(kubeconfig, name=CONTEXT)
    except (ConfigError, OSError):
        return  # no such file or context: nothing to remove
