"""`trainwright stack`: prints the Python stacks of all ranks of a running job.

On the embedded cluster py-spy, or a signal, reaches their processes directly; on others inside their containers.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from trainwright.cli.errors import CommandError
from trainwright.cli.jobs.pods.logs import LogRange, current_runs, logged_runs, read_log
from trainwright.cli.jobs.pods.pod_exec import run_in_pod
from trainwright.cli.jobs.pods.ranks import RankPod, latest_of_each_rank, rank_pods, select_rank
from trainwright.cli.jobs.references import FoundJob, find_job, job_argument
from trainwright.cli.jobs.session import Session, cluster_command
from trainwright.cli.output.console import plain_text
from trainwright.cli.pods_python import active_python, install_command
from trainwright.cluster.facade import PodProcess, processes_of
from trainwright.programs import find_program, python_environment

_PY_SPY_SECONDS = 30
_SIGNALS = ("USR1", "USR2", "ABRT")
"""Signals with which programs register faulthandler."""


@dataclass(frozen=True, slots=True)
class PythonProcess:
    rank: str
    pod: RankPod
    process: PodProcess

    @property
    def title(self) -> str:
        words = " ".join(self.process.command)
        return plain_text(f"{self.rank}: pid {self.process.pid}: {words[:120]}")


@click.command(name="stack")
@job_argument
@click.option("--rank", metavar="RANK", help="Only this rank: worker-0, or 0 for the first one.")
@click.option("--locals", "show_locals", is_flag=True, help="Show local variables too.")
@click.option(
    "--signal",
    "signal_name",
    type=click.Choice(_SIGNALS),
    help="Send this signal instead of using py-spy: for programs that call faulthandler.register(signal.SIGUSR1).",
)
@cluster_command
def command(
    session: Session, job: tuple[str, ...], rank: str | None, show_locals: bool, signal_name: str | None
) -> None:
    """Print the Python stacks of all ranks of a running job.

    It uses py-spy, which the programs do not notice. Install it into the active environment, into the Python of the
    cluster, or anywhere on PATH.
    Pids are those of this machine.

    On other clusters py-spy runs inside the pods: the image needs it, and the container the capability SYS_PTRACE.
    """
    found = find_job(session, job)
    pods = latest_of_each_rank(select_rank(rank_pods(session, found), rank))
    if session.target.data is None:
        by_exec = StacksByExec(session, found, show_locals=show_locals, signal_name=signal_name)
        if not by_exec.print(pods):
            sys.exit(1)
        return
    processes = list(_python_processes(pods))
    if not processes:
        raise CommandError(f"{found.reference} has no running Python process")
    if signal_name is not None:
        failed = _dump_by_signal(session, processes, signal.Signals[f"SIG{signal_name}"])
    else:
        failed = _dump_by_py_spy(found, session, processes, show_locals=show_locals)
    if failed == len(processes):
        sys.exit(1)


def _python_processes(pods: list[RankPod]) -> Iterator[PythonProcess]:
    found = processes_of(pod.record for pod in pods if pod.record)
    for pod in pods:
        for process in found.get(pod.uid, ()):
            if is_python(process):
                yield PythonProcess(pod.rank, pod, process)


def is_python(process: PodProcess) -> bool:
    """By the executable, which a program cannot rename."""
    try:
        name = Path(f"/proc/{process.pid}/exe").readlink().name
    except OSError:
        name = Path(process.command[0]).name if process.command else ""
    return name.startswith(("python", "pypy"))


# py-spy


def find_py_spy(*pythons: str) -> str | None:
    """Beside one of these Pythons or ours, or on PATH.

    The Pythons are those of the user and of the cluster. That of a pod is none of them: annotations and the names of
    processes are the words of a tenant, and this program is started as the user.
    """
    for python in (*pythons, sys.executable):
        if python.startswith("/") and (found := find_program("py-spy", str(Path(python).parent))):
            return found
    return find_program("py-spy")


def _dump_by_py_spy(job: FoundJob, session: Session, processes: list[PythonProcess], *, show_locals: bool) -> int:
    """Prints the stacks; returns how many processes could not be read."""
    failed = 0
    active = active_python()
    py_spy = find_py_spy(*([str(active)] if active else []), session.target.python)
    if py_spy is None:
        raise CommandError(_not_installed(job, session, processes[0]))
    for process in processes:
        click.echo(process.title)
        arguments = [py_spy, "dump", "--pid", str(process.process.pid), *(["--locals"] if show_locals else [])]
        try:
            done = subprocess.run(
                arguments,
                env=python_environment(),
                cwd="/",
                capture_output=True,
                text=True,
                timeout=_PY_SPY_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            click.echo(f"  py-spy did not answer within {_PY_SPY_SECONDS} s", err=True)
            failed += 1
            continue
        except OSError as error:
            raise CommandError(f"failed to run {py_spy}: {error.strerror}") from error
        if done.returncode != 0:
            failed += 1
            click.echo(plain_text(f"  {py_spy_error(done.stderr)}"), err=True)
            continue
        print_stack(done.stdout)
    return failed


def _not_installed(job: FoundJob, session: Session, one: PythonProcess) -> str:
    installer = install_command(str(active_python() or session.target.python))
    text = f"py-spy is not installed: `{installer} py-spy`" if installer else "py-spy is not installed"
    handled = [name for name in _SIGNALS if name != "ABRT" and catches(one.process.pid, signal.Signals[f"SIG{name}"])]
    if handled:
        name = handled[0]
        text += (
            f"\n{one.rank} handles SIG{name}: if that is faulthandler.register(signal.SIG{name}), "
            f"`trainwright stack {job.name} --signal {name}{session.flags}` prints its stack"
        )
    return text


# faulthandler


def catches(pid: int, number: signal.Signals) -> bool:
    """Whether the process has a handler for the signal; without one it would end."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    mask = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(mask, 16) >> (number - 1) & 1)


def _dump_by_signal(session: Session, processes: list[PythonProcess], number: signal.Signals) -> int:
    """Sends the signal to the processes that handle it, and prints what they then write to their logs."""
    failed = 0
    for process in processes:
        click.echo(process.title)
        if not catches(process.process.pid, number):
            click.echo(no_handler(number.name), err=True)
            failed += 1
            continue
        start = time.time()
        try:
            os.kill(process.process.pid, number)
        except OSError as error:  # it has ended meanwhile, or belongs to another user
            click.echo(f"  failed to send {number.name}: {error.strerror}", err=True)
            failed += 1
            continue
        print_new_lines(session, process.pod, start)
    return failed


# Inside containers

_LOG_SECONDS = 3.0
_NO_COMMAND = (126, 127)
_PROCESSES = """
for link in /proc/[0-9]*/exe; do
  program=$(readlink "$link") || continue
  case "${program##*/}" in
    python*|pypy*)
      pid=${link#/proc/}; pid=${pid%/exe}
      handled=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status")
      echo "$pid $handled ${program%/*} $(tr '\\0\\n' '  ' <"/proc/$pid/cmdline")" ;;
  esac
done
"""
"""Prints pid, mask of handled signals, directory of the interpreter and command line of every Python process."""
_DUMP = 'PATH="$PATH:$1" exec py-spy dump --pid "$2" $3'
"""py-spy is often beside the interpreter."""
_PROCESS = re.compile(r"[0-9]{1,10} [0-9a-f]{1,32} \S")
"""The beginning of a line of it. A pod prints what it likes: any other text would become words of a command."""


class StacksByExec:
    def __init__(self, session: Session, job: FoundJob, *, show_locals: bool, signal_name: str | None) -> None:
        self._session = session
        self._job = job
        self._options = "--locals" if show_locals else ""
        self._signal = signal_name

    def print(self, pods: list[RankPod]) -> bool:
        """False if no stack could be read."""
        running = [pod for pod in pods if pod.pod and pod.pod.phase == "Running"]
        lines = [(pod, line) for pod in running for line in self._processes(pod)]
        processes = [(pod, line.split(maxsplit=3)) for pod, line in lines if _PROCESS.match(line)]
        if not processes:
            raise CommandError(f"{self._job.reference} has no running Python process")
        read = [self._dump(pod, *fields) for pod, fields in processes]
        return any(read)

    def _processes(self, pod: RankPod) -> list[str]:
        return self._run(pod, "sh", "-c", _PROCESSES)[1].splitlines()

    def _dump(self, pod: RankPod, pid: str, handled: str, directory: str, command: str = "") -> bool:
        click.echo(plain_text(f"{pod.rank}: pid {pid}: {command[:120]}"))
        if self._signal is not None:
            return self._dump_by_signal(pod, pid, int(handled, 16))
        code, output, error = self._run(pod, "sh", "-c", _DUMP, "sh", directory, pid, self._options)
        if code in _NO_COMMAND:
            raise CommandError(
                f"py-spy is not installed in the image of {pod.name}: add it (pip install py-spy), or let the program "
                f"call faulthandler.register(signal.SIGUSR1) and use --signal USR1"
            )
        if code:
            click.echo(plain_text(f"  {py_spy_error(error)}"), err=True)
            return False
        print_stack(output)
        return True

    def _dump_by_signal(self, pod: RankPod, pid: str, handled: int) -> bool:
        name = f"SIG{self._signal}"
        if not handled >> (signal.Signals[name] - 1) & 1:
            click.echo(no_handler(name), err=True)
            return False
        start = time.time()
        code, _, error = self._run(pod, "sh", "-c", f"kill -{self._signal} {pid}")
        if code:
            click.echo(plain_text(f"  failed to send {name}: {error}"), err=True)
            return False
        print_new_lines(self._session, pod, start)
        return True

    def _run(self, pod: RankPod, *command: str) -> tuple[int, str, str]:
        done = run_in_pod(self._session, self._job, pod, *command)
        return done.exit_code, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def py_spy_error(text: str) -> str:
    """Its first line, and what to do."""
    lines = [line for line in text.splitlines() if line.strip()]
    message = lines[0].removeprefix("Error: ") if lines else "py-spy failed"
    if "ermission" in text:
        advice = "set kernel.yama.ptrace_scope to 0, or start the cluster as root"
        return f"{message}: py-spy may not read this process; {advice}"
    return message


def no_handler(signal_name: str) -> str:
    return f"  it has no handler for {signal_name}, which would end it: nothing was sent"


def print_stack(output: str) -> None:
    """What py-spy says of one process. Its first two lines name the process again."""
    for line in "\n".join(output.splitlines()[2:]).strip("\n").splitlines():
        click.echo(plain_text(f"  {line}") if line else "")


def print_new_lines(session: Session, pod: RankPod, start: float) -> None:
    """Prints the lines of the log since `start`, when no more come or the time is over."""
    deadline, seen = time.monotonic() + _LOG_SECONDS, -1
    lines: list[str] = []
    while time.monotonic() < deadline and len(lines) != seen:
        seen = len(lines) or -1
        time.sleep(0.2)
        runs = current_runs(logged_runs([pod]))
        lines = [line.text for run in runs for line in read_log(session, run, LogRange(since=start))]
    for text in lines:
        click.echo(plain_text(f"  {text}"))
