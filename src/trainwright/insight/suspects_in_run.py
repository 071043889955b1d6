"""The processes of a run that may have failed: that of the container, or those that torchrun or mpirun started."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trainwright.insight.cause_by_peer import caused_by_peers
from trainwright.insight.cause_of_process import NODE_STOPPED, decisive_exception, explain
from trainwright.insight.log_exceptions import FailedProcess, RaisedException, find_exceptions, find_failed_processes
from trainwright.insight.log_mpirun import MpiReport, find_mpi_report, is_trace
from trainwright.insight.process_end import Cause, Explanation, ProcessEnd, describe_end
from trainwright.objects.kinds.container_runs import ContainerRun


@dataclass(frozen=True, slots=True)
class Suspect:
    """A process that has failed or may have: that of a run, or one of those that torchrun started in it."""

    run: ContainerRun
    exit_code: int | None
    exception: RaisedException | None
    process: FailedProcess | None
    explanation: Explanation
    by_peers: Cause | None
    name: str = ""
    host: str = ""
    """The pod of a process that mpirun started."""

    @property
    def failed(self) -> bool:
        return self.exit_code not in {None, 0} or self.exception is not None

    @property
    def was_stopped(self) -> bool:
        """True if a signal ended it that clean-up sends too."""
        return self.exception is None and self.explanation.cause in {Cause.KILLED, Cause.TERMINATED}

    @property
    def onset(self) -> float:
        """When it began to fail; infinity if unknown."""
        if self.exception is not None and self.exception.at is not None:
            return self.exception.at
        if self.process is not None and self.process.at is not None:
            return self.process.at
        return self.end

    @property
    def onset_is_exact(self) -> bool:
        known = self.exception.at if self.exception else self.process.at if self.process else None
        return known is not None or (self.run.exact and self.run.finished_at is not None)

    @property
    def end(self) -> float:
        return math.inf if self.run.finished_at is None else self.run.finished_at

    @property
    def log_is_unknown(self) -> bool:
        """True if its log was not read: outside the embedded cluster that may not be allowed."""
        return not self.run.lines and not self.run.exact

    @property
    def is_vague(self) -> bool:
        """True if nothing but an exit code is known: a follower may end so too."""
        return self.explanation.cause in {Cause.EXIT_CODE, Cause.UNKNOWN}


def suspects_of(run: ContainerRun) -> list[Suspect]:
    found = _suspects_of(run)
    if not run.stopped:
        return found
    # How a program ends on SIGTERM is its own affair: mpirun does so with 1, or crashes.
    summary = f"{describe_end(run.exit_code, run.reason)} after SIGTERM"
    ended = Explanation(Cause.TERMINATED, summary, "a user or the cluster ended it")
    own_affair = {Cause.EXIT_CODE, Cause.UNKNOWN, Cause.NATIVE_CRASH}
    return [
        replace(suspect, explanation=ended) if suspect.explanation.cause in own_affair else suspect for suspect in found
    ]


def _suspects_of(run: ContainerRun) -> list[Suspect]:
    if run.rank == _LAUNCHER:
        run = replace(run, lines=tuple(line for line in run.lines if not is_trace(line.text)))
    if run.reason == NODE_STOPPED:
        # What it printed meanwhile, about peers that were stopped too, is no cause.
        return [replace(_suspect(run, run.exit_code, None), by_peers=None)]
    if run.exit_code not in {None, 0} and (report := find_mpi_report(run.lines)):
        return [_of_mpirun(run, report)]
    exceptions = find_exceptions(run.lines)
    table = find_failed_processes(run.lines)
    of_program = [raised for raised in exceptions if not raised.of_launcher]
    # Exceptions in threads have no rank before them.
    processes = {raised.process for raised in of_program if raised.process is not None}
    if not table and len(of_program) == len(exceptions) and len(processes) <= 1:
        return [_suspect(run, run.exit_code, decisive_exception(exceptions, run.lines, run.exit_code))]
    found = _processes(run, of_program, table)
    if found or run.exit_code == 0:
        return found
    # Only torchrun itself has failed.
    return [_suspect(run, run.exit_code, decisive_exception(exceptions, run.lines, run.exit_code), of_launcher=True)]


_LAUNCHER = "launcher"
"""The rank of an MPIJob that runs mpirun."""


def _processes(
    run: ContainerRun, exceptions: Sequence[RaisedException], table: Sequence[FailedProcess]
) -> list[Suspect]:
    """The processes that torchrun started in the container, and that have failed."""
    last = {raised.process: raised for raised in exceptions}
    unnamed = last.pop(None, None)
    entries = {entry.rank: entry for entry in table}
    if any(entry.exit_code != 143 for entry in table):
        # torchrun ends the others by SIGTERM when one has failed.
        table = [entry for entry in table if entry.exit_code != 143]
        entries = {entry.rank: entry for entry in table}
    silent = [entry for entry in table if entry.rank not in last and entry.exit_code == 1]
    if unnamed and len(silent) == 1:
        last[silent[0].rank] = unnamed
        unnamed = None
    found = []
    for rank in sorted({*last, *entries} - {None}, key=lambda number: number or 0):
        entry, exception = entries.get(rank or 0), last.get(rank)
        found.append(_suspect(run, entry.exit_code if entry else 1, exception, process=entry, name=_name(rank, entry)))
    if unnamed:
        found.append(_suspect(run, 1, unnamed))
    return found


def _of_mpirun(run: ContainerRun, report: MpiReport) -> Suspect:
    """The process that mpirun names, or mpirun itself. The log has the output of all processes: the first exception
    is that of the process that failed first."""
    code = report.exit_code or run.exit_code or 1
    ending = [raised for raised in find_exceptions(run.lines) if decisive_exception([raised], run.lines, code)]
    own = [raised for raised in ending if not caused_by_peers(ProcessEnd(run, code, exception=raised))]
    is_of_program = report.explanation is None or report.explanation.cause is Cause.KILLED
    exception = own[0] if own and is_of_program else None
    entry = FailedProcess(report.rank or 0, 0, code, report.at, report.first_line)
    found = _suspect(run, code, exception, process=entry, name=_mpi_name(run, report))
    explanation = found.explanation
    if exception is None and report.explanation is not None:
        explanation = report.explanation
    elif exception is None and explanation.cause is Cause.KILLED:
        explanation = replace(explanation, advice=_KILLED_IN_WORKER)
    by_peers = Cause.LOST_PEER if report.lost_worker else None
    return replace(found, explanation=explanation, by_peers=by_peers, host=report.host)


_KILLED_IN_WORKER = (
    "a user killed it, or the kernel did because the worker exceeded its memory limit: raise resources.limits.memory "
    "of the Worker or lower the batch size"
)


def _mpi_name(run: ContainerRun, report: MpiReport) -> str:
    where = report.host.removeprefix(run.pod.removesuffix(run.rank))
    if report.rank is None:
        return ""
    return f"process {report.rank} on {where}" if where else f"process {report.rank}"


def _name(rank: int | None, entry: FailedProcess | None) -> str:
    return f"local rank {entry.local_rank}" if entry else f"global rank {rank}"


def _suspect(
    run: ContainerRun,
    exit_code: int | None,
    exception: RaisedException | None,
    *,
    process: FailedProcess | None = None,
    name: str = "",
    of_launcher: bool = False,
) -> Suspect:
    # The end of the log is that of the launcher, not of a process of it.
    lines = run.lines[: process.first_line] if process else () if name else run.lines
    reason = run.reason if not process else ""
    ended = ProcessEnd(run, exit_code, reason, exception, lines)
    explanation, by_peers = explain(ended), caused_by_peers(ended)
    if of_launcher and exception is not None and "SignalException" in exception.text[0]:
        stopped = replace(ended, exit_code=143, exception=None, lines=())
        return Suspect(run, exit_code, None, process, explain(stopped), None, name)
    return Suspect(run, exit_code, exception, process, explanation, by_peers, name)
