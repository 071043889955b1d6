"""`trainwright down`: stops the embedded cluster and its pods, and on request forgets everything."""

import sys
from pathlib import Path

import click

from trainwright.cli.commands.up import user_kubeconfig
from trainwright.cli.errors import Problem
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
@click.option("--keep-pods", is_flag=True, help="Leave the pods running; the next `up` finds them again.")
@click.option("--purge", is_flag=True, help="Also delete the data directory: all objects, volumes and models in it.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before deleting.")
def command(data_dir: Path | None, keep_pods: bool, purge: bool, yes: bool) -> None:
    """Stop the embedded cluster and its pods.

    Nothing is lost: after the next `up` the same objects are there, and pods that were running are started again as
    their restart policy says, as after a reboot.
    """
    if purge and keep_pods:
        raise Problem("--purge deletes what the pods work in: leave out --keep-pods")
    data = data_dir_at(data_dir)
    if purge and not yes:
        _confirm(data)
    record = data.running()
    click.echo(f"→ embedded cluster {'at ' + record.server if record else 'of ' + str(data.path)}", err=True)
    try:
        stopped = stop_cluster(data)
    except ClusterError as error:
        raise Problem(str(error)) from error
    ended = 0 if keep_pods else kill_pods(data)
    click.echo(summary(data, stopped=stopped, ended=ended, kept=keep_pods))
    if purge:
        _purge(data, record)


def summary(data: DataDir, *, stopped: bool, ended: int, kept: bool) -> str:
    done = "Stopped the cluster" if stopped else f"No cluster was running in {data.path}"
    if kept:
        return f"{done}; pods keep running, `trainwright up` finds them again"
    return f"{done}; ended {ended} pod{'' if ended == 1 else 's'}" if ended else f"{done}; no pods were running"


def _confirm(data: DataDir) -> None:
    if not (data.path / "format").exists():
        raise Problem(f"{data.path} is no data directory of trainwright: nothing is deleted")
    if not sys.stdin.isatty():
        raise Problem(f"--purge deletes {data.path}: say --yes where nobody can be asked")
    click.confirm(f"Delete {data.path} with all objects, volumes and models in it?", abort=True)


def _purge(data: DataDir, record: ClusterRecord | None) -> None:
    if not (data.path / "format").exists():
        raise Problem(f"{data.path} is no data directory of trainwright: nothing is deleted")
    kubeconfig = Path(record.kubeconfig) if record else user_kubeconfig(None)
    _forget_context(data, kubeconfig)
    try:
        delete_data(data)
    except ClusterError as error:
        raise Problem(str(error)) from error
    click.echo(f"Deleted {data.path}")


def _forget_context(data: DataDir, kubeconfig: Path) -> None:
    """Takes our context out of the user's kubeconfig, if it is that of this cluster and not of another."""
    try:
        ours, theirs = (load_kubeconfig(file, context=CONTEXT) for file in (data.kubeconfig, kubeconfig))
        if ours.token == theirs.token:
            remove_from_kubeconfig(kubeconfig, name=CONTEXT)
    except (ConfigError, OSError):
        return  # there is no such file or context: nothing to take out
