"""`trainwright up`: starts the embedded cluster, in the foreground or detached; `up_process` is what then runs."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from trainwright import __version__
from trainwright.cli.contexts import remove_context, user_kubeconfig
from trainwright.cli.errors import CommandError
from trainwright.cli.flags import data_dir_flag, python_path
from trainwright.cli.output.console import Console
from trainwright.cli.targets import cluster_flag, data_dir_at
from trainwright.cli.up.up_flags import UpFlags
from trainwright.cluster.facade import UNKNOWN_IMAGES, ClusterError, ClusterRecord, DataDir, delete_data
from trainwright.programs import own_module

_READY_SECONDS = 60.0
_SHOWN_LOG_LINES = 15


def nfs_mapping(text: str) -> tuple[str, str]:
    """`SERVER:/PATH=DIRECTORY`."""
    export, _, directory = text.partition("=")
    server, _, path = export.partition(":")
    if not server or not path.startswith("/") or not directory:
        raise click.BadParameter(f"{text!r}: write SERVER:/PATH=DIRECTORY")
    if not Path(directory).is_dir():
        raise click.BadParameter(f"{directory} is not a directory on this machine")
    return f"{server}:{os.path.normpath(path)}", str(Path(directory).absolute())


@click.command(name="up")
@click.option("--detach", "-d", is_flag=True, help="Start in the background and return when the cluster is ready.")
@data_dir_flag
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The kubeconfig file to add the context `trainwright` to (default: $KUBECONFIG or ~/.kube/config).",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="The port to listen on (default: the one of the last start, or 26443).",
)
@click.option(
    "--python",
    type=lambda text: str(python_path(text)),
    metavar="PATH",
    help="The default Python of pods (default: the active virtual or conda environment, else python3 on PATH).",
)
@click.option(
    "--sandbox",
    type=click.Choice(["overlay", "plain"]),
    help="How pods are isolated from the files of this machine (default: the strongest level that works).",
)
@click.option(
    "--map-nfs",
    "nfs_mappings",
    type=nfs_mapping,
    multiple=True,
    callback=lambda _context, _option, pairs: dict(pairs),
    metavar="SERVER:/PATH=DIR",
    help="A directory of this machine in place of an NFS export, for volumes of pods (can be repeated; default: those "
    "of the last start).",
)
@click.option(
    "--gang-scheduler-name",
    metavar="NAME",
    help="Start all pods of a job or none: volcano, or any name for the PodGroups of the coscheduling plugin.",
)
@click.option(
    "--unknown-images",
    type=click.Choice(UNKNOWN_IMAGES),
    help="What happens to a pod whose image is not on this machine: it runs on the machine's own files, the image is "
    "pulled, or the pod waits (default: host).",
)
@click.option(
    "--registry",
    "registries",
    multiple=True,
    metavar="HOST[:PORT]",
    help="A registry from which images of pods are pulled without a login (can be repeated).",
)
@click.option("--ephemeral", is_flag=True, help="End the pods and delete the data when the cluster stops.")
@click.option("-v", "--verbose", is_flag=True, help="Log at debug level.")
def command(
    detach: bool,
    data_dir: Path | None,
    kubeconfig: Path | None,
    port: int | None,
    gang_scheduler_name: str | None,
    ephemeral: bool,
    verbose: bool,
    **node: Any,
) -> None:
    """Start the embedded cluster.

    It is a small server with the Kubernetes API and a node whose pods are processes of this machine. In the foreground,
    Ctrl-C stops it and leaves its pods running; the next `up` adopts them.

    With --detach, a cluster that is already running is left unchanged. That is an error only if its settings differ
    from the given flags.
    """
    require_linux()
    data = data_dir_at(data_dir)
    flags = UpFlags(
        kubeconfig=kubeconfig,
        port=port,
        gang_scheduler=gang_scheduler_name,
        ephemeral=ephemeral,
        node={name: value for name, value in node.items() if value},
    )
    if detach:
        _start_detached(data, flags, verbose=verbose)
    else:
        _run_in_foreground(data, flags, verbose=verbose)


def require_linux() -> None:
    if sys.platform != "linux":
        raise CommandError(
            f"the embedded cluster needs Linux, this is {sys.platform}: `run`, `status` and `operator` work here with "
            "any Kubernetes cluster that --context selects"
        )


def differences(record: ClusterRecord, flags: UpFlags) -> list[str]:
    """The settings of a running cluster that differ from the given flags."""
    pairs = [
        ("--port", urlsplit(record.server).port, flags.port),
        ("--kubeconfig", record.kubeconfig, str(flags.kubeconfig.absolute()) if flags.kubeconfig else None),
        ("--ephemeral", record.ephemeral, flags.ephemeral or None),
    ]
    for field, value in flags.node.items():
        actual, given = (",".join(_flag_values(setting)) for setting in (getattr(record, field), value))
        pairs.append((_flag_of(field), actual or "none", given))
    return [f"{flag} {actual}, not {given}" for flag, actual, given in pairs if given is not None and given != actual]


def _flag_of(field: str) -> str:
    """The flag of a field of NodeSettings."""
    return next(option.opts[0] for option in command.params if option.name == field)


def _flag_values(value: str | Mapping[str, str] | Sequence[str]) -> list[str]:
    """A setting as users write it behind its flag, which some repeat."""
    if isinstance(value, Mapping):
        return sorted(f"{key}={item}" for key, item in value.items())
    return [value] if isinstance(value, str) else sorted(value)


def banner(record: ClusterRecord, data: DataDir, *, detached: bool) -> list[str]:
    """The address and settings of a cluster that has started, and the next commands."""
    flag = cluster_flag(data)
    return [
        f"trainwright {record.version} is up at {record.server}",
        f"  context  {record.context}, in {record.kubeconfig}",
        f"  sandbox  {record.sandbox}",
        f"  python   {record.python} ({record.python_origin}; default for pods)",
        f"  data     {data.path}{', deleted when the cluster stops' if record.ephemeral else ''}",
        f"Run:   trainwright run{flag} train.py, or job.yaml",
        f"List:  trainwright ps{flag}, or kubectl --context {record.context} get pytorchjobs,pods",
        f"Stop:  trainwright down{flag}" if detached else "Stop:  Ctrl-C; pods keep running",
    ]


def _prepare(data: DataDir, flags: UpFlags) -> None:
    """Creates the data directory. What an ephemeral cluster left there because it was killed is deleted."""
    from trainwright.cli.pods_of_stopped_cluster import end_pods

    has_data = data.store.exists() and data.owner() is None
    try:
        if has_data and data.is_ephemeral:
            end_pods(data, now=True)
            delete_data(data)
        elif has_data and flags.ephemeral:
            raise CommandError(
                f"--ephemeral deletes the data of the cluster when it stops, and {data.path} has data: choose another "
                "cluster with --cluster NAME, or delete the data with `trainwright down --delete`"
            )
        data.create()
        if flags.ephemeral:
            data.mark_ephemeral()
    except ClusterError as error:
        raise CommandError(str(error)) from error


# In the foreground


def _run_in_foreground(data: DataDir, flags: UpFlags, *, verbose: bool) -> None:
    running = data.running()
    if running:
        raise CommandError(
            f"already up at {running.server} (pid {running.pid}, data directory {data.path}): stop it with "
            f"`trainwright down{cluster_flag(data)}`, or start another one with --cluster NAME"
        )
    _prepare(data, flags)
    import asyncio
    import logging

    from trainwright.cli.logging import LogFormat, start_logging
    from trainwright.cli.pods_of_stopped_cluster import end_pods
    from trainwright.cli.up.up_process import run_cluster
    from trainwright.kube.client.kubeconfig import ConfigError

    console = Console.of()
    # On a terminal the command's own lines are enough.
    start_logging(LogFormat(logging.DEBUG if verbose else logging.WARNING if sys.stderr.isatty() else logging.INFO))

    def on_note(note: str) -> None:
        console.print(f"Note: {note}", colour="yellow")

    def on_ready(record: ClusterRecord) -> None:
        for line in banner(record, data, detached=False):
            console.print(line)

    try:
        running_pods = asyncio.run(run_cluster(data, flags, on_note=on_note, on_ready=on_ready))
    except (ClusterError, ConfigError) as error:
        raise CommandError(str(error)) from error
    if flags.ephemeral:
        end_pods(data)
        remove_context(user_kubeconfig(flags.kubeconfig), data)
        delete_data(data)
        console.print(f"Stopped; deleted {data.path}")
    else:
        console.print(stopped_message(running_pods))


def stopped_message(pods: int) -> str:
    if not pods:
        return "Stopped; no pods are running"
    pods_keep, them = ("1 pod keeps", "it") if pods == 1 else (f"{pods} pods keep", "them")
    return f"Stopped; {pods_keep} running: `trainwright up` adopts {them}, `trainwright down` stops {them}"


# Detached


def _start_detached(data: DataDir, flags: UpFlags, *, verbose: bool) -> None:
    console = Console.of()
    running = data.running()
    record, notes = (running, None) if running else start_detached(data, flags, verbose=verbose)
    if notes is None:
        _report_running(record, data, flags, console)
        return
    for line in (*notes, *banner(record, data, detached=True)):
        console.print(line)


def start_detached(data: DataDir, flags: UpFlags, *, verbose: bool = False) -> tuple[ClusterRecord, list[str] | None]:
    """The record of the new cluster and the notes of its start; no notes if another `up` was faster."""
    _prepare(data, flags)
    log_offset = data.log.stat().st_size if data.log.exists() else 0
    with open(data.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
        process = subprocess.Popen(
            _foreground_command(data, flags, verbose=verbose),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=data.path,
        )
    record = _wait_until_ready(process, data, log_offset)
    notes = _log_lines(data, log_offset, prefix="Note: ") if record.pid == process.pid else None
    return record, notes


def _report_running(record: ClusterRecord, data: DataDir, flags: UpFlags, console: Console) -> None:
    if different := differences(record, flags):
        raise CommandError(
            f"already up at {record.server} with other settings ({'; '.join(different)}): "
            "stop it with `trainwright down` first, or omit these flags"
        )
    console.print(f"already up at {record.server} (trainwright {record.version}, data directory {data.path})")
    if record.version != __version__:
        console.print(
            f"Note: this is trainwright {__version__}; to upgrade, run `trainwright down` and `trainwright up`"
        )


def _foreground_command(data: DataDir, flags: UpFlags, *, verbose: bool) -> list[str]:
    words = own_module("trainwright", "up", "--data-dir", str(data.path))
    # Absolute because the cluster runs in another working directory.
    words += ["--kubeconfig", str(flags.kubeconfig.absolute())] if flags.kubeconfig else []
    words += ["--port", str(flags.port)] if flags.port else []
    words += ["--gang-scheduler-name", flags.gang_scheduler] if flags.gang_scheduler else []
    words += ["--ephemeral"] if flags.ephemeral else []
    for field, value in flags.node.items():
        words += [word for text in _flag_values(value) for word in (_flag_of(field), text)]
    return [*words, "--verbose"] if verbose else words


def _wait_until_ready(process: "subprocess.Popen[bytes]", data: DataDir, log_offset: int) -> ClusterRecord:
    """The record of the cluster once it is ready; a CommandError with the end of its log if it does not start."""
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        ended = process.poll() is not None
        record = data.running()
        if record and (ended or record.pid == process.pid):
            return record
        # If another `up` was faster, wait for its cluster.
        if ended and data.owner() is None:
            raise CommandError(f"the cluster failed to start:\n{_log_end(data, log_offset)}")
        if time.monotonic() > deadline:
            process.terminate()
            raise CommandError(f"the cluster was not ready after {_READY_SECONDS:.0f} s:\n{_log_end(data, log_offset)}")
        time.sleep(0.02)


def _log_end(data: DataDir, log_offset: int) -> str:
    """The last lines that this start has logged."""
    shown = [f"  {line.removeprefix('Error: ')}" for line in _log_lines(data, log_offset)[-_SHOWN_LOG_LINES:]]
    disk_full = ": the disk is full; free some space" if os.statvfs(data.path).f_bavail == 0 else ""
    return "\n".join(shown or [f"  {data.log} is empty{disk_full}"])


def _log_lines(data: DataDir, log_offset: int, *, prefix: str = "") -> list[str]:
    with data.log.open("rb") as log:
        log.seek(log_offset)
        return [line for line in log.read().decode(errors="replace").splitlines() if line.startswith(prefix)]
