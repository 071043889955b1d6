"""`trainwright up`: starts the embedded cluster, in the foreground or detached."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import click

from trainwright import __version__
from trainwright.cli.console import Console
from trainwright.cli.errors import Problem
from trainwright.cli.flags import data_dir_flag, python_path
from trainwright.cli.targets import data_dir_at
from trainwright.cluster.embedded import CONTEXT, ClusterError, ClusterRecord, DataDir

_READY_SECONDS = 60.0
_SHOWN_LOG_LINES = 15


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user asked for; None: no matter."""

    kubeconfig: Path | None
    port: int | None
    python: Path | None
    sandbox: str | None


@click.command(name="up")
@click.option("--detach", "-d", is_flag=True, help="Start it in the background and return when it is ready.")
@data_dir_flag
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file that gets the context `trainwright` (default: the first of $KUBECONFIG, or ~/.kube/config).",
)
@click.option(
    "--port", type=click.IntRange(1, 65535), help="The port to listen on (default: that of the last start, or 26443)."
)
@click.option(
    "--python",
    type=python_path,
    metavar="PATH",
    help="The Python of pods whose job names none (default: the one that runs trainwright).",
)
@click.option(
    "--sandbox",
    type=click.Choice(["overlay", "plain"]),
    help="How far pods are kept apart from this machine's files (default: the strongest that works here).",
)
@click.option("-v", "--verbose", is_flag=True, help="Log every decision.")
def command(
    detach: bool,
    data_dir: Path | None,
    kubeconfig: Path | None,
    port: int | None,
    python: Path | None,
    sandbox: str | None,
    verbose: bool,
) -> None:
    """Start the embedded cluster.

    A small server that speaks the Kubernetes API, with a node whose pods are processes of this machine. In the
    foreground, Ctrl-C stops it and leaves its pods running; the next `up` finds them again.

    With --detach a cluster that is already up is left as it is, and that is no error unless it was started with other
    settings than these.
    """
    if sys.platform != "linux":
        raise Problem(
            f"the embedded cluster needs Linux, this is {sys.platform}: here `run`, `status` and `operator` work with "
            "any Kubernetes cluster that --context names"
        )
    data, wishes = data_dir_at(data_dir), Wishes(kubeconfig, port, python, sandbox)
    if detach:
        _start_detached(data, wishes, verbose=verbose)
    else:
        _stay(data, wishes, verbose=verbose)


def user_kubeconfig(asked: Path | None, environment: Mapping[str, str] = os.environ) -> Path:
    """The file that kubectl would write to."""
    if asked:
        return asked.absolute()
    listed = [part for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    return Path(listed[0]).absolute() if listed else Path.home() / ".kube" / "config"


def differences(record: ClusterRecord, wishes: Wishes) -> list[str]:
    """In which settings a running cluster is not what is asked for."""
    pairs = [
        ("--port", urlsplit(record.server).port, wishes.port),
        ("--sandbox", record.sandbox, wishes.sandbox),
        ("--python", record.python, str(wishes.python) if wishes.python else None),
        ("--kubeconfig", record.kubeconfig, str(wishes.kubeconfig.absolute()) if wishes.kubeconfig else None),
    ]
    return [f"{option} {there}, not {asked}" for option, there, asked in pairs if asked is not None and asked != there]


def banner(record: ClusterRecord, data: DataDir, *, detached: bool) -> list[str]:
    """What a user wants to know about a cluster that is up, and what to do next."""
    default = data == DataDir.default()
    flag = "" if default else f" --data-dir {data.path}"
    return [
        f"trainwright {record.version} is up at {record.server}",
        f"  context  {CONTEXT}, in {record.kubeconfig}",
        f"  sandbox  {record.sandbox}",
        f"  python   {record.python}, for pods whose job names no other",
        f"  data     {data.path}",
        f"Train:  trainwright run{flag} pytorchjob.yaml",
        f"Look:   kubectl --context {CONTEXT} get pytorchjobs,pods",
        f"Stop:   trainwright down{flag}" if detached else "Stop:   Ctrl-C; pods keep running",
    ]


# In the foreground


def _stay(data: DataDir, wishes: Wishes, *, verbose: bool) -> None:
    running = data.running()
    if running:
        raise Problem(f"already up at {running.server} (pid {running.pid}, data directory {data.path}): {_INSTEAD}")
    import asyncio
    import logging

    from trainwright.cli.embedded_operator import UpOptions, host
    from trainwright.cli.logging import LogFormat, start_logging
    from trainwright.kube.client.kubeconfig import ConfigError

    console = Console.of()
    # On a terminal the command's own lines are enough.
    start_logging(LogFormat(logging.DEBUG if verbose else logging.WARNING if sys.stderr.isatty() else logging.INFO))
    options = UpOptions(
        data=data,
        kubeconfig=user_kubeconfig(wishes.kubeconfig),
        kubeconfig_asked=wishes.kubeconfig is not None,
        port=wishes.port,
        python=wishes.python,
        sandbox=wishes.sandbox,
    )

    def on_note(note: str) -> None:
        console.say(f"Note: {note}", colour="yellow")

    def on_ready(record: ClusterRecord) -> None:
        for line in banner(record, data, detached=False):
            console.say(line)

    try:
        left = asyncio.run(host(options, on_note=on_note, on_ready=on_ready))
    except (ClusterError, ConfigError) as error:
        raise Problem(str(error)) from error
    console.say(stopped(left))


_INSTEAD = "`trainwright status` shows it, `trainwright down` stops it; another one needs --data-dir and --port"


def stopped(pods: int) -> str:
    if not pods:
        return "Stopped; no pods are running"
    many = "1 pod keeps" if pods == 1 else f"{pods} pods keep"
    return f"Stopped; {many} running: `trainwright up` finds them again, `trainwright down` ends them"


# Detached


def _start_detached(data: DataDir, wishes: Wishes, *, verbose: bool) -> None:
    console = Console.of()
    running = data.running()
    if running:
        _already_up(running, data, wishes, console)
        return
    try:
        data.create()
    except ClusterError as error:
        raise Problem(str(error)) from error
    written = data.log.stat().st_size if data.log.exists() else 0
    with data.log.open("ab") as log:
        process = subprocess.Popen(
            _own_command(data, wishes, verbose=verbose),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=data.path,
        )
    record = _wait_until_ready(process, data, written)
    if record.pid != process.pid:
        _already_up(record, data, wishes, console)
        return
    for line in (*_logged(data, written, only="Note: "), *banner(record, data, detached=True)):
        console.say(line)


def _already_up(record: ClusterRecord, data: DataDir, wishes: Wishes, console: Console) -> None:
    if different := differences(record, wishes):
        raise Problem(
            f"already up at {record.server} with other settings ({'; '.join(different)}): "
            "stop it with `trainwright down` first, or leave out what it need not have"
        )
    console.say(f"already up at {record.server} (trainwright {record.version}, data directory {data.path})")
    if record.version != __version__:
        console.say(f"Note: this is trainwright {__version__}; `trainwright down` and `up` again to change to it")


def _own_command(data: DataDir, wishes: Wishes, *, verbose: bool) -> list[str]:
    words = [sys.executable, "-m", "trainwright", "up", "--data-dir", str(data.path)]
    # Absolute: the cluster's working directory is another one.
    words += ["--kubeconfig", str(wishes.kubeconfig.absolute())] if wishes.kubeconfig else []
    words += ["--port", str(wishes.port)] if wishes.port else []
    words += ["--python", str(wishes.python)] if wishes.python else []
    words += ["--sandbox", wishes.sandbox] if wishes.sandbox else []
    return [*words, "--verbose"] if verbose else words


def _wait_until_ready(process: "subprocess.Popen[bytes]", data: DataDir, written: int) -> ClusterRecord:
    """The record of the cluster once it is there; a Problem with the end of its log if it does not come."""
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        ended = process.poll() is not None
        record = data.running()
        if record and (ended or record.pid == process.pid):
            return record
        # Another `up` may have been a moment earlier: then that one's cluster is waited for.
        if ended and data.owner() is None:
            raise Problem(f"the cluster did not start:\n{_log_end(data, written)}")
        if time.monotonic() > deadline:
            process.terminate()
            raise Problem(f"the cluster was not ready within {_READY_SECONDS:.0f} s:\n{_log_end(data, written)}")
        time.sleep(0.02)


def _log_end(data: DataDir, written: int) -> str:
    """What this start has logged, at most the last lines of it."""
    shown = [f"  {line.removeprefix('Error: ')}" for line in _logged(data, written)[-_SHOWN_LOG_LINES:]]
    return "\n".join(shown or [f"  {data.log} says nothing{_why_silent(data)}"])


def _why_silent(data: DataDir) -> str:
    disk = os.statvfs(data.path)
    return ": the disk is full; free some space" if disk.f_bavail == 0 else ""


def _logged(data: DataDir, written: int, *, only: str = "") -> list[str]:
    with data.log.open("rb") as log:
        log.seek(written)
        return [line for line in log.read().decode(errors="replace").splitlines() if line.startswith(only)]
