"""`trainwright doctor`: checks this machine and the embedded cluster, one line for each, and says what to do."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from trainwright import __version__
from trainwright.cli.commands.jobs.stack import find_py_spy
from trainwright.cli.commands.status import failed_checks, sandbox_text, unmet
from trainwright.cli.contexts import user_kubeconfig
from trainwright.cli.flags import data_dir_flag
from trainwright.cli.machine import free_disk, free_memory, has_gpu, is_disk_low, memory, open_file_limit
from trainwright.cli.output.console import Console
from trainwright.cli.output.tables import hanging, terminal_width
from trainwright.cli.pods_python import BY_FLAG, callers_python, default_python, install_command
from trainwright.cli.targets import data_dir_at, embedded_cluster
from trainwright.cluster.facade import ClusterRecord, DataDir, try_sandbox
from trainwright.kube.client.errors import ApiError, Unreachable
from trainwright.kube.client.kubeconfig import ConfigError, load_kubeconfig
from trainwright.kube.client.requests import raw_request
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects.kinds.nodes import OWN_PORTS
from trainwright.objects.resources import NODES
from trainwright.programs import find_program, python_environment

_INDENT = 17
_OPEN_FILES = 1024
_LITTLE_MEMORY = 2**30
_SECONDS = 20
_PACKAGES = """
import os, sys
from importlib import metadata, util
print(sys.version.split()[0])
try: torch = metadata.distribution("torch")
except metadata.PackageNotFoundError: sys.exit()
program = str(torch.locate_file("torch/__init__.py"))
has_bytecode = not os.path.exists(program) or os.path.exists(util.cache_from_source(program))
print(torch.version)
print("" if has_bytecode else os.path.dirname(program))
"""
"""Prints the versions of Python and torch, and the directory of torch if it has no bytecode."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `level`: ok, note (works, but) or FAIL."""

    topic: str
    text: str
    level: str = "ok"
    advice: str = ""


@click.command(name="doctor")
@data_dir_flag
def command(data_dir: Path | None) -> None:
    """Check this machine and its cluster, and say what to do.

    Exit codes: 0 everything works, 1 something is broken.
    """
    data = data_dir_at(data_dir)
    console, broken, width = Console.of(), False, terminal_width()
    for check in CHECKS:
        for finding in check(data):
            broken = broken or finding.level == "FAIL"
            colour = {"ok": "green", "note": "yellow"}.get(finding.level, "red")
            text = hanging(finding.text, indent=_INDENT, width=width)
            console.print(f"{console.style(f'{finding.level:<5}', fg=colour)} {finding.topic:<10} {text}")
            if finding.advice:
                console.print(" " * _INDENT + hanging(finding.advice, indent=_INDENT, width=width))
    if broken:
        sys.exit(1)


def check_version(data: DataDir) -> Iterator[Finding]:
    _ = data
    yield Finding("version", f"trainwright {__version__} on {sys.executable} (Python {sys.version.split()[0]})")


def check_python(data: DataDir) -> Iterator[Finding]:
    """The Python that `run` in this shell would give to pods."""
    record = data.running()
    python, origin = _python_of_pods(record)
    default = f"; jobs that kubectl creates use {record.python}" if record and record.python != python else ""
    try:
        # Pods do not get the caller's PYTHONPATH. With -c modules of the current directory come first: that is /.
        printed = subprocess.run(
            [python, "-c", _PACKAGES],
            env=python_environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it failed"
        advice = "choose another: trainwright up --python PATH"
        yield Finding("python", f"{python} cannot be run: {reason}", "FAIL", advice)
        return
    version, *torch = printed.splitlines()
    text = f"{python}{f' ({origin})' if origin else ''}: Python {version}"
    if not torch:
        advice = f"PyTorchJobs need it: {install_command(python)} torch, or choose another Python with --python"
        yield Finding("python", f"{text}, without torch{default}", "note", advice)
    elif directory := torch[1]:
        compile_once = f"{python} -m compileall -q {directory}"
        advice = f"every rank compiles it when it starts, which takes seconds. Do it once: {compile_once}"
        yield Finding("python", f"{text}, torch {torch[0]} without bytecode{default}", "note", advice)
    else:
        yield Finding("python", f"{text}, torch {torch[0]}{default}")


def check_sandbox(data: DataDir) -> Iterator[Finding]:
    """Tried anew if no cluster is running."""
    record = data.running()
    if record is not None:
        level, reason, shared_ports = record.sandbox, "", ""
    else:
        level, reason, shared_ports = try_sandbox(Path(sys.executable))
    text = sandbox_text(level, [])
    if level == "overlay":
        yield Finding("sandbox", text)
    else:
        why = f"; overlay does not work here: {reason}" if reason else ""
        advice = "run as root, or allow unprivileged user namespaces and overlay mounts"
        yield Finding("sandbox", f"{text}{why}", "note", advice)
    if record is None:
        yield ports_finding(shared_ports)


def ports_finding(shared: str) -> Finding:
    """`shared` is why pods have the ports of the machine, with the advice behind the first sentence."""
    if not shared:
        return Finding("ports", "every pod has its own ports, at its own address")
    text, _, advice = shared.partition(". ")
    return Finding("ports", text, "note", advice)


def check_resources(data: DataDir) -> Iterator[Finding]:
    advice = "checkpoints and logs need space: delete files, or choose another disk with --data-dir"
    yield _note_if(is_disk_low(data.path), "disk", f"{free_disk(data.path)} at {data.path}", advice)
    little = memory()[1] < _LITTLE_MEMORY
    advice = "ranks may be killed by the kernel: end other programs"
    yield _note_if(little, "memory", f"{free_memory()}, {os.cpu_count()} cores", advice)
    limit = open_file_limit()
    yield _note_if(limit < _OPEN_FILES, "files", f"{limit} open files allowed", "raise it: ulimit -n 4096")


def _note_if(is_low: bool, topic: str, text: str, advice: str) -> Finding:
    return Finding(topic, text, "note", advice) if is_low else Finding(topic, text)


def check_gpus(data: DataDir) -> Iterator[Finding]:
    _ = data
    if not has_gpu():
        yield Finding("gpu", "no NVIDIA GPU: jobs train on the CPU")
        return
    names = _output(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"])
    if names is None:
        yield Finding("gpu", "there is an NVIDIA device, but nvidia-smi fails", "note", "install the driver's tools")
    else:
        yield Finding("gpu", f"{len(names.splitlines())} × {names.splitlines()[0]}" if names else "none")


def check_kubectl(data: DataDir) -> Iterator[Finding]:
    _ = data
    path = find_program("kubectl")
    if path is None:
        yield Finding("kubectl", "not installed, and not needed")
        return
    printed = _output([path, "version", "--client", "--output=json"])
    version = printed.partition('"gitVersion": "')[2].partition('"')[0] if printed else ""
    yield Finding("kubectl", f"{path} {version}".strip())


def check_cluster(data: DataDir) -> Iterator[Finding]:
    record = data.running()
    start = "start it: trainwright up --detach"
    if record is None:
        if data.owner() is not None:
            yield Finding("cluster", f"starting, or not ready: see {data.log}", "note", "trainwright status shows it")
        else:
            yield Finding("cluster", f"not running in {data.path}", "ok", start)
            yield from _check_port(data)
        return
    try:
        with SyncClient(embedded_cluster(data).config, retries=False, timeout=5.0) as client:
            failed = failed_checks(client.send(raw_request("GET", "/readyz", params={"verbose": "true"})).body)
            nodes = client.list(NODES).items
    except (Unreachable, ApiError, click.ClickException) as error:
        restart = "restart it: trainwright down --keep-pods && trainwright up --detach"
        yield Finding("cluster", f"pid {record.pid} does not answer at {record.server}: {error}", "FAIL", restart)
        return
    if failed:
        yield Finding("cluster", f"not healthy: {', '.join(failed)}", "FAIL", f"see {data.log}")
    else:
        yield Finding("cluster", f"running at {record.server}, pid {record.pid}, version {record.version}")
    yield ports_finding(next(iter(unmet(nodes, OWN_PORTS)), ""))
    yield from _check_context(record)


def _check_port(data: DataDir) -> Iterator[Finding]:
    """The port that kubeconfigs of an earlier start refer to."""
    import socket

    port = data.remembered_port()
    if port is None:
        return
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port.number))
        except OSError as error:
            level = "FAIL" if port.requested else "note"
            advice = "stop the program that uses it, or choose another: trainwright up --port PORT"
            yield Finding("port", f"127.0.0.1:{port.number}: {error.strerror}", level, advice)


def _check_context(record: ClusterRecord) -> Iterator[Finding]:
    path = user_kubeconfig(None)
    try:
        found = load_kubeconfig(path, context=record.context)
    except (ConfigError, OSError):
        advice = "commands of trainwright do not need it; `trainwright up` adds it"
        yield Finding("context", f"{path} has no context {record.context}", "note", advice)
        return
    if found.server != record.server:
        advice = f"it belongs to another cluster: kubectl --kubeconfig {record.kubeconfig}"
        yield Finding("context", f"context {record.context} of {path} is {found.server}", "note", advice)
    else:
        yield Finding("context", f"context {record.context} in {path}")


def check_tools(data: DataDir) -> Iterator[Finding]:
    python, _ = _python_of_pods(data.running())
    if found := find_py_spy(python):
        yield Finding("py-spy", found)
    else:
        advice = f"`trainwright stack` needs it: {install_command(python)} py-spy"
        yield Finding("py-spy", "not installed", "ok", advice)


CHECKS: tuple[Callable[[DataDir], Iterator[Finding]], ...] = (
    check_version,
    check_python,
    check_sandbox,
    check_resources,
    check_gpus,
    check_cluster,
    check_kubectl,
    check_tools,
)


def _python_of_pods(record: ClusterRecord | None) -> tuple[str, str]:
    found = callers_python(default_named=record is not None and record.python_origin == BY_FLAG)
    if found is None and record is not None:
        return record.python, record.python_origin
    found = found or default_python(None)
    return str(found.path), found.origin


def _output(command: list[str]) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
