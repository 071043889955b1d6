"""`trainwright down`: stops the embedded cluster and its pods; --delete deletes its data."""

import sys
from pathlib import Path

import click

from trainwright.cli.contexts import remove_context, user_kubeconfig
from trainwright.cli.errors import CommandError
from trainwright.cli.flags import data_dir_flag
from trainwright.cli.pods_of_stopped_cluster import count_pods, end_pods
from trainwright.cli.targets import data_dir_at
from trainwright.cluster.facade import (
    STOP_SECONDS,
    ClusterError,
    ClusterRecord,
    DataDir,
    delete_data,
    running_pods,
    stop_cluster,
)

_EPHEMERAL_SECONDS = 600.0
"""Its process first waits for the grace periods of the pods."""


@click.command(name="down")
@data_dir_flag
@click.option("--keep-pods", is_flag=True, help="Leave the pods running; the next `up` adopts them.")
@click.option("--now", is_flag=True, help="Kill the pods at once, without SIGTERM and grace period.")
@click.option(
    "--delete", "--purge", "delete", is_flag=True, help="Also delete its data: all objects, volumes, logs and models."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
def command(data_dir: Path | None, keep_pods: bool, now: bool, delete: bool, yes: bool) -> None:
    """Stop the embedded cluster and its pods.

    Pods get SIGTERM and end by their grace period, so that a program can save a checkpoint. A second Ctrl-C, or --now,
    kills them.

    Objects are kept for the next `up`. Pods that were running are then restarted according to their restart policy, as
    after a reboot of the node.
    """
    if now and keep_pods:
        raise CommandError("--now cannot be combined with --keep-pods: it kills the pods")
    if delete and keep_pods:
        raise CommandError("--delete cannot be combined with --keep-pods: it deletes the volumes of the pods")
    data = data_dir_at(data_dir)
    if delete and not yes:
        _confirm(data)
    record = data.running()
    click.echo(f"→ embedded cluster {'at ' + record.server if record else 'in ' + str(data.path)}", err=True)
    if record and record.ephemeral:
        _stop_ephemeral(data, record, now=now)
        return
    stopped = _stop(data)
    remove_context(Path(record.kubeconfig) if record else user_kubeconfig(None), data)
    done = summary(data, stopped=stopped)
    if keep_pods:
        click.echo(f"{done}; its pods keep running, `trainwright up` adopts them")
    else:
        ended, killed = end_pods(data, now=now)
        click.echo(f"{done}; {ended_pods(ended, killed)}")
    if delete:
        _delete(data)


def _stop(data: DataDir, *, seconds: float = STOP_SECONDS) -> bool:
    try:
        return stop_cluster(data, seconds=seconds)
    except ClusterError as error:
        raise CommandError(str(error)) from error


def _stop_ephemeral(data: DataDir, record: ClusterRecord, *, now: bool) -> None:
    """Its process ends the pods and deletes the data."""
    if now:
        running_pods(data).kill()
    remove_context(Path(record.kubeconfig), data)
    _stop(data, seconds=_EPHEMERAL_SECONDS)
    click.echo(f"Stopped the cluster; deleted {data.path}")


def summary(data: DataDir, *, stopped: bool) -> str:
    return "Stopped the cluster" if stopped else f"No cluster was running in {data.path}"


def ended_pods(ended: int, killed: int) -> str:
    """`ended`: pods that ended after SIGTERM; `killed`: pods that did not, or that were not asked."""
    if not ended:
        return f"killed {count_pods(killed)}" if killed else "no pods were running"
    return f"stopped {count_pods(ended)}" + (f", killed {killed}" if killed else "")


def _confirm(data: DataDir) -> None:
    _check_data_dir(data)
    if not sys.stdin.isatty():
        raise CommandError(f"--delete deletes {data.path}: confirm it with --yes, standard input is not a terminal")
    click.confirm(f"Delete {data.path} with all objects, volumes and models in it?", abort=True)


def _check_data_dir(data: DataDir) -> None:
    if not (data.path / "format").exists():
        raise CommandError(f"{data.path} is not a data directory of trainwright: nothing was deleted")


def _delete(data: DataDir) -> None:
    _check_data_dir(data)
    try:
        images = delete_data(data)
    except ClusterError as error:
        raise CommandError(str(error)) from error
    click.echo(f"Deleted {data.path}" + (f" except {count_images(images)}" if images else ""))


def count_images(count: int) -> str:
    images = "1 image" if count == 1 else f"{count} images"
    return f"{images}, which `trainwright image prune --all` removes"
