"""`trainwright down`: stops the embedded cluster and its pods; --purge deletes its data."""

import sys
from pathlib import Path

import click

from trainwright.cli.commands.up import user_kubeconfig
from trainwright.cli.console import Console
from trainwright.cli.errors import CommandError
from trainwright.cli.flags import data_dir_flag
from trainwright.cli.targets import data_dir_at
from trainwright.cluster.embedded import (
    CONTEXT,
    ClusterError,
    ClusterRecord,
    DataDir,
    delete_data,
    running_pods,
    stop_cluster,
)
from trainwright.kube.client.kubeconfig import ConfigError, load_kubeconfig, remove_from_kubeconfig

_PROGRESS_SECONDS = 0.2


@click.command(name="down")
@data_dir_flag
@click.option("--keep-pods", is_flag=True, help="Leave the pods running; the next `up` adopts them.")
@click.option("--now", is_flag=True, help="Kill the pods at once, without SIGTERM and grace period.")
@click.option("--purge", is_flag=True, help="Also delete the data directory with all objects, volumes and models.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
def command(data_dir: Path | None, keep_pods: bool, now: bool, purge: bool, yes: bool) -> None:
    """Stop the embedded cluster and its pods.

    Pods get SIGTERM and end by their grace period, so that a program can save a checkpoint. A second Ctrl-C, or --now,
    kills them.

    Objects are kept for the next `up`. Pods that were running are then restarted according to their restart policy, as
    after a reboot of the node.
    """
    if now and keep_pods:
        raise CommandError("--now cannot be combined with --keep-pods: it kills the pods")
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
    done = summary(data, stopped=stopped)
    if keep_pods:
        click.echo(f"{done}; its pods keep running, `trainwright up` adopts them")
    else:
        ended, killed = _end_pods(data, now=now)
        click.echo(f"{done}; {ended_pods(ended, killed)}")
    if purge:
        _purge(data, record)


def summary(data: DataDir, *, stopped: bool) -> str:
    return "Stopped the cluster" if stopped else f"No cluster was running in {data.path}"


def ended_pods(ended: int, killed: int) -> str:
    """`ended`: pods that ended after SIGTERM; `killed`: pods that did not, or that were not asked."""
    if not ended:
        return f"killed {_pods(killed)}" if killed else "no pods were running"
    return f"stopped {_pods(ended)}" + (f", killed {killed}" if killed else "")


def _pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"


def _end_pods(data: DataDir, *, now: bool) -> tuple[int, int]:
    """Ends the pods; returns how many ended after SIGTERM, and how many were killed."""
    pods = running_pods(data)
    if pods.total and not now:
        pods.stop()
        console, interrupted = Console.of(sys.stderr), False
        if not sys.stderr.isatty():
            console.print(f"Stopping {_pods(pods.total)}, at most {pods.seconds:.0f}s")
        while True:
            try:
                console.live(f"Stopping {_pods(pods.total)}: {pods.left} left, at most {pods.seconds:.0f}s")
                if pods.wait(_PROGRESS_SECONDS):
                    break
            except KeyboardInterrupt:
                if interrupted:
                    break
                interrupted = True
                console.print("Waiting for the pods to end by their grace period; Ctrl-C again kills them")
        console.live("")
    left = pods.kill()
    return pods.total - left, left


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
