"""`trainwright down`: stops the embedded cluster and its pods, and on request forgets everything."""

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

from trainwright.cli.commands.up import user_kubeconfig
from trainwright.cli.errors import Problem
from trainwright.cli.pod_cleanup import end_pods
from trainwright.cli.targets import data_dir_at, data_dir_option
from trainwright.cluster.datadir import CONTEXT, ClusterRecord, DataDir
from trainwright.cluster.identity import ProcessIdentity
from trainwright.cluster.node.supervisor.files import remove_tree
from trainwright.kube.client.kubeconfig import ConfigError, load_kubeconfig, remove_from_kubeconfig

_STOP_SECONDS = 20.0


@click.command(name="down")
@data_dir_option
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
    # One that is still starting, or whose record was lost, has to be stopped as well: it has the lock.
    process = record.process if record else data.owner()
    if process:
        _stop(process)
    ended = 0 if keep_pods else end_pods(data.node)
    click.echo(summary(data, stopped=process is not None, ended=ended, kept=keep_pods))
    if purge:
        _purge(data, record)


def summary(data: DataDir, *, stopped: bool, ended: int, kept: bool) -> str:
    done = "Stopped the cluster" if stopped else f"No cluster was running in {data.path}"
    if kept:
        return f"{done}; pods keep running, `trainwright up` finds them again"
    return f"{done}; ended {ended} pod{'' if ended == 1 else 's'}" if ended else f"{done}; no pods were running"


def _stop(process: ProcessIdentity) -> None:
    """Asks the process to end, and waits. It is told from a later one with the same pid by its start time."""
    try:
        os.kill(process.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise Problem(f"pid {process.pid} belongs to another user: stop it as that user") from error
    if not _wait(lambda: not process.alive):
        raise Problem(
            f"the cluster (pid {process.pid}) has not stopped within {_STOP_SECONDS:.0f} s: look into its log, "
            f"or end it with `kill -9 {process.pid}`; nothing that it acknowledged is lost"
        )


def _wait(done: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _STOP_SECONDS
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


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
    remove_tree(str(data.path))
    if data.path.exists():
        raise Problem(f"{data.path} could not be deleted whole: what is left belongs to another user")
    click.echo(f"Deleted {data.path}")


def _forget_context(data: DataDir, kubeconfig: Path) -> None:
    """Takes our context out of the user's kubeconfig, if it is that of this cluster and not of another."""
    try:
        ours, theirs = (load_kubeconfig(file, context=CONTEXT) for file in (data.kubeconfig, kubeconfig))
        if ours.token == theirs.token:
            remove_from_kubeconfig(kubeconfig, name=CONTEXT)
    except (ConfigError, OSError):
        return  # there is no such file or context: nothing to take out
