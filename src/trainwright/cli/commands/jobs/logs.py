"""`trainwright logs`: prints the logs of all ranks of a job, merged in the order in which they were written."""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import NoReturn

import click

from trainwright.cli.errors import CommandError
from trainwright.cli.flags import duration
from trainwright.cli.follow.logs.container_output import ContainerOutput
from trainwright.cli.jobs.failure import diagnose_pods, diagnosis_lines, evidence_lines, recorded_failure
from trainwright.cli.jobs.pods.logs import LoggedLine, LogRange, current_runs, logged_runs, read_logs
from trainwright.cli.jobs.pods.ranks import RankPod, rank_pods, select_rank
from trainwright.cli.jobs.references import FoundJob, find_job, job_argument
from trainwright.cli.jobs.session import Session, cluster_command
from trainwright.cli.jobs.summary import job_state
from trainwright.cli.output.console import Console, visible
from trainwright.objects.kinds.container_runs import ContainerRun, RunKey
from trainwright.objects.times import format_micro_time


@click.command(name="logs")
@job_argument
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the job has finished.")
@click.option("--rank", metavar="RANK", help="Only this rank: worker-0, or 0 for the first one.")
@click.option("-c", "--container", metavar="NAME", help="Only this container; also an init container.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines of each rank.")
@click.option("--since", type=duration, metavar="DURATION", help="Only lines that are not older (90s, 5m, 1h).")
@click.option("-p", "--previous", is_flag=True, help="The run before the last restart of each rank.")
@click.option("--all-restarts", is_flag=True, help="All runs of each rank, also of pods that were replaced.")
@click.option("--timestamps", is_flag=True, help="Print the time before each line.")
@click.option("--prefix/--no-prefix", default=None, help="Print the rank before each line (default: without --rank).")
@click.option("--errors", is_flag=True, help="Only why the job failed, and the last lines of the ranks that failed.")
@cluster_command
def command(
    session: Session,
    job: tuple[str, ...],
    follow: bool,
    rank: str | None,
    container: str | None,
    tail: int | None,
    since: float | None,
    previous: bool,
    all_restarts: bool,
    timestamps: bool,
    prefix: bool | None,
    errors: bool,
) -> None:
    """Print the logs of all ranks of a job, merged by time.

    With --follow the lines of all restarts are printed, each once, and in the end the result of the job; the exit code
    is that of `run`. Otherwise, if the job has failed, the rank that failed first and the cause come before the logs,
    on standard error. On the embedded cluster logs are kept until the job is deleted, also those of pods that were
    cleaned up.
    """
    found = find_job(session, job)
    if follow:
        for flag in ("previous", "timestamps", "since", "container", "errors"):
            if click.get_current_context().params[flag]:
                raise CommandError(f"--{flag} cannot be combined with --follow")
        _follow(session, found, rank=rank, tail=tail)
    pods = select_rank(rank_pods(session, found), rank)
    if errors:
        _print_errors(session, found, pods)
        return
    _print_failure(session, found, pods)
    runs = _wanted_runs(logged_runs(pods, container=container), previous=previous, all_restarts=all_restarts)
    wanted = LogRange(tail=tail, since=time.time() - since if since is not None else None)
    printer = _Printer(runs, prefix=rank is None if prefix is None else prefix, timestamps=timestamps)
    printer.print(read_logs(session, runs, wanted))
    _print_hints(session, found, pods, runs, container=container, all_runs=all_restarts or previous)


def _follow(session: Session, job: FoundJob, *, rank: str | None, tail: int | None) -> NoReturn:
    from trainwright.cli.follow.report import follow_and_report

    ranks = None
    if rank is not None:
        ranks = frozenset(pod.rank for pod in select_rank(rank_pods(session, job), rank))
    sys.exit(follow_and_report([job.object], session.client, session.target, Console.of(), tail=tail, ranks=ranks))


def _wanted_runs(runs: list[ContainerRun], *, previous: bool, all_restarts: bool) -> list[ContainerRun]:
    if previous and all_restarts:
        raise CommandError("--previous cannot be combined with --all-restarts, which includes it")
    return runs if all_restarts else current_runs(runs, previous=previous)


class _Printer:
    """Prints lines behind the labels of their ranks, all of one width, or exactly as the program wrote them."""

    def __init__(self, runs: Sequence[ContainerRun], *, prefix: bool, timestamps: bool) -> None:
        self._console = Console.of()
        self._timestamps = timestamps
        containers = {(run.rank, run.container) for run in runs}
        self._several_containers = len({rank for rank, _ in containers}) < len(containers)
        names = dict.fromkeys(self._name(run) for run in runs) if prefix else {}
        width = max(map(len, names), default=0)
        self._labels = {name: (name.ljust(width), number) for number, name in enumerate(names)}

    def print(self, lines: Iterable[LoggedLine]) -> None:
        for line in lines if not self._labels else _without_frames(lines):
            text = line.text
            if self._timestamps:
                # A progress bar returns to the beginning of its line, where the time is.
                text = f"{format_micro_time(datetime.fromtimestamp(line.at, UTC))} {visible(text)}"
            if not self._labels:
                self._print_unchanged(text)
                continue
            label, number = self._labels[self._name(line.run)]
            self._console.print_log(label, number, text)

    def _print_unchanged(self, text: str) -> None:
        """On a terminal without control codes, which could change what it shows or types."""
        try:
            sys.stdout.write(f"{visible(text) if self._console.tty else text}\n")
        except UnicodeEncodeError:
            self._console.print(text)  # replaces what the terminal cannot show

    def _name(self, run: ContainerRun) -> str:
        return f"[{run.rank}/{run.container}]" if self._several_containers else f"[{run.rank}]"


def _without_frames(lines: Iterable[LoggedLine]) -> Iterator[LoggedLine]:
    """Leaves out all but the last state of nested progress bars: a terminal shows them one over the other."""
    outputs: dict[RunKey, ContainerOutput] = {}
    last: dict[RunKey, LoggedLine] = {}
    for line in lines:
        key = line.run.key
        last[key] = line
        if outputs.setdefault(key, ContainerOutput()).add("", line.text, partial=False) is not None:
            yield line
    for key, output in outputs.items():
        yield from (last[key]._replace(text=text) for text in output.end())


def _print_failure(session: Session, job: FoundJob, pods: Sequence[RankPod]) -> None:
    """Names the rank that failed first, before the logs."""
    if job_state(job.object) != "Failed":
        return
    diagnosis = diagnose_pods(session, job, pods)
    lines = diagnosis_lines(diagnosis) if diagnosis else recorded_failure(job.object)
    if not lines:
        return
    first, *rest = lines
    console = Console.of(sys.stderr)
    console.print(f"{job.name} failed: {first}", colour="red")
    for line in rest:
        console.print(f"  {line}")
    console.print(f"  only what failed: trainwright logs {job.name} --errors{session.flags}")


def _print_errors(session: Session, job: FoundJob, pods: Sequence[RankPod]) -> None:
    diagnosis = diagnose_pods(session, job, pods)
    if diagnosis is None:
        click.echo(f"no container of {job.reference} has failed", err=True)
        return
    console = Console.of()
    first, *rest = diagnosis_lines(diagnosis)
    console.print(first, colour="red")
    for line in rest:
        console.print(line)
    for line in evidence_lines(diagnosis):
        console.print(f"  {line}")


def _print_hints(
    session: Session,
    job: FoundJob,
    pods: Sequence[RankPod],
    shown: Sequence[ContainerRun],
    *,
    container: str | None,
    all_runs: bool,
) -> None:
    """What else there is, on standard error."""
    if not pods:
        why = f"`trainwright describe {job.name}{session.flags}` says why"
        click.echo(f"{job.reference} has no pods yet: {why}", err=True)
    elif not shown:
        click.echo(f"there is no such log: no container{f' {container}' if container else ''} has run", err=True)
    hidden = len(logged_runs(pods, container=container)) - len(shown)
    if hidden and shown and not all_runs:
        click.echo(f"{hidden} earlier run{'s are' if hidden > 1 else ' is'} not shown: see --all-restarts", err=True)
