"""Python stacks of the programs in pods of any cluster: py-spy, or a signal, inside their containers."""

import re
import time

import click

from trainwright.cli.errors import CommandError
from trainwright.cli.jobs.pods.logs import LogRange, current_runs, logged_runs, read_log
from trainwright.cli.jobs.pods.pod_exec import run_in_pod
from trainwright.cli.jobs.pods.ranks import RankPod
from trainwright.cli.jobs.references import FoundJob
from trainwright.cli.jobs.session import Session
from trainwright.cli.output.console import plain_text

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
_SIGNALS = {"USR1": 10, "USR2": 12, "ABRT": 6}


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
        if not handled >> (_SIGNALS[str(self._signal)] - 1) & 1:
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
