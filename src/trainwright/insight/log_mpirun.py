"""What mpirun of Open MPI 4 and 5, and MPICH's, report in the log of a launcher about a failed program."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from trainwright.insight.process_end import Cause, Explanation
from trainwright.objects.kinds.container_runs import Line


@dataclass(frozen=True, slots=True)
class MpiReport:
    first_line: int
    """Where mpirun's report begins in the log; the lines before it are the program's."""
    at: float | None = None
    rank: int | None = None
    """The process that failed first."""
    host: str = ""
    """The worker of the process, or the one that mpirun lost."""
    exit_code: int | None = None
    """How the process ended, as a container does: 137 if signal 9 killed it."""
    explanation: Explanation | None = None
    """If mpirun failed before the program started, or lost a worker."""

    @property
    def lost_worker(self) -> bool:
        return self.explanation is not None and self.explanation.cause is Cause.LOST_PEER


def find_mpi_report(lines: Sequence[Line]) -> MpiReport | None:
    """None if mpirun has reported nothing. What comes first in the table explains most."""
    if not any(_HINT.search(line.text) for line in lines):
        return None
    texts = [line.text.strip() for line in lines]
    found = ((number, match, read) for pattern, read in _REPORTS for number, match in _matches(pattern, texts))
    number, match, read = next(found, (0, None, None))
    if match is None or read is None:
        return None
    report = read(_Found(number, match, texts))
    earlier = range(max(number - _REPORTED_LINES, 0), number)
    first = next((begin for begin in earlier if _BEGIN.search(texts[begin])), number)
    return replace(report, first_line=first, at=lines[number].at, host=report.host or _only(_PEER, texts))


def is_trace(text: str) -> bool:
    """True for what kubexec.sh and mpirun print about starting processes."""
    return _TRACE.match(text) is not None


class _Found(NamedTuple):
    """A line that begins a report, among all lines of the log."""

    number: int
    match: re.Match[str]
    texts: Sequence[str]

    def below(self, pattern: str) -> str:
        """The group of the first match in the lines of the report."""
        matches = (re.search(pattern, text) for text in self.texts[self.number : self.number + _NEAR])
        return next((match[1] for match in matches if match), "")


_TRACE = re.compile(
    r"\+(?: |$)|shift\+?$|POD_NAME=\S|/opt/kube/kubectl exec |\[[\w.-]{1,253}:\d{5,9}\] plm:.{0,40} Warning: setpgid"
)
_HINT = re.compile(r"MPI|mpirun|orted|prte|ORTE|PRTE|RUNNING AT|abort\(|enough slots")
_BEGIN = re.compile(
    r"^-{60,}$|^=={30,}$|^\[[\w.-]{1,253}:\d{5,9}\] (?:\*\*\*|PMIX ERROR)|^\*\*\* An error occurred in MPI_"
    r"|^\[[\w.-]{1,253}\]\[\[\d{1,9},\d{1,9}\],\d{1,9}\]\["  # lost connections, often without an end of line
)
_PEER = re.compile(r"^Peer host: +(?P<host>\S{1,253})$")
_MPIRUN = r"(?:mpirun|mpiexec|orterun|prterun|prte)"
_REPORTED_LINES = 60
"""mpirun writes several reports one after the other; lines of dashes before that are the program's."""
_NEAR = 12
"""How many lines below its first one a report ends."""


def _matches(pattern: re.Pattern[str], texts: Sequence[str]) -> list[tuple[int, re.Match[str]]]:
    return [(number, match) for number, text in enumerate(texts) if (match := pattern.search(text))]


def _only(pattern: re.Pattern[str], texts: Sequence[str]) -> str:
    hosts = {match["host"] for _, match in _matches(pattern, texts)}
    return hosts.pop() if len(hosts) == 1 else ""


def _int(text: str) -> int | None:
    return int(text) if text else None


def _slots(found: _Found) -> MpiReport:
    summary = f"mpirun was asked for {found.match[1]} processes, but the workers have fewer slots"
    advice = "lower `-n` of mpirun, or raise `slotsPerWorker` or the number of Workers"
    return MpiReport(found.number, explanation=Explanation(Cause.BAD_ARGUMENT, summary, advice))


def _no_daemon(found: _Found) -> MpiReport:
    name = found.match[1].rpartition("/")[2]
    summary = f"the workers have no {name}, by which mpirun starts processes in them: {found.match[0]}"
    advice = "give Launcher and Workers the same image, or the same MPI at the same path"
    return MpiReport(found.number, explanation=Explanation(Cause.COMMAND_NOT_FOUND, summary, advice))


def _no_executable(found: _Found) -> MpiReport:
    host = found.below(r"^Node: +(\S+)")
    name = found.below(r"^Executable: +(\S+)") or "the program"
    summary = f"{name} does not exist in {host or 'a worker'}, or is not executable"
    advice = "check the words behind the options of mpirun, and the image of the Workers"
    return MpiReport(found.number, host=host, explanation=Explanation(Cause.COMMAND_NOT_FOUND, summary, advice))


def _not_started(found: _Found) -> MpiReport:
    """The agent says why; kubectl's errors begin so."""
    errors = [text for text in found.texts if re.match(r"error: |Error from server |Unable to connect", text)]
    if lost := next((text for text in errors if _LOST_SERVER.search(text)), None):
        summary = f"mpirun lost its daemons in the workers: {lost}"
        explanation = Explanation(Cause.UNREACHABLE_PEER, summary, "the API server was stopped or started again")
        return MpiReport(found.number, explanation=explanation)
    summary = "mpirun could not start its daemon in a worker" + (f": {errors[0]}" if errors else "")
    advice = "see whether all workers run, and their events"
    return MpiReport(found.number, explanation=Explanation(Cause.UNREACHABLE_PEER, summary[:300], advice))


def _lost(found: _Found) -> MpiReport:
    host = found.below(r"^Remote daemon: .{1,100} on node (\S+)")
    summary = f"mpirun lost the connection to {host or 'a worker'}"
    advice = "the worker was deleted or evicted, or its node was lost: see `trainwright events`"
    return MpiReport(found.number, host=host, explanation=Explanation(Cause.LOST_PEER, summary, advice))


def _aborted(found: _Found) -> MpiReport:
    rank = int(found.match[1])
    exits = [exited for text in found.texts if (exited := _EXITED.search(text)) and int(exited["rank"]) == rank]
    host = exits[0]["host"] if exits else ""
    code = _int(found.below(r"[Ee]rror ?code:? (\d{1,3})\b"))
    return MpiReport(found.number, rank=rank, host=host, exit_code=code)


def _aborted_mpich(found: _Found) -> MpiReport:
    return MpiReport(found.number, rank=int(found.match["rank"]), exit_code=int(found.match["code"]) & 0xFF)


def _signalled(found: _Found) -> MpiReport:
    return MpiReport(
        found.number,
        rank=int(found.match["rank"]),
        host=found.match["host"],
        exit_code=128 + int(found.match["signal"]),
    )


def _exited(found: _Found) -> MpiReport:
    rank = found.below(r"^Process name: \[.{1,200},(\d{1,6})\]")
    return MpiReport(found.number, rank=_int(rank), exit_code=_int(found.below(r"^Exit code: +(\d{1,3})\b")))


def _ended_mpich(found: _Found) -> MpiReport:
    code = _int(found.below(r"^= +EXIT CODE: (\d{1,5})\b"))
    # Hydra reports a signal as the status of waitpid.
    code = 128 + code if code is not None and code in _SIGNALS else code
    return MpiReport(found.number, host=found.match["host"], exit_code=code)


def _disconnected(found: _Found) -> MpiReport:
    """One of the others ended, and mpirun does not say which."""
    host = _only(_PEER, found.texts)
    summary = f"the connection to a process{f' on {host}' if host else ''} was lost"
    return MpiReport(found.number, host=host, explanation=Explanation(Cause.KILLED, summary, _LOST_ADVICE))


_LOST_SERVER = re.compile(r"ended before the command did|unexpected EOF|client connection lost")
_LOST_ADVICE = (
    "a process ended without MPI_Finalize, killed or crashed: compare its memory with the limits of the Worker"
)
_SIGNALS = frozenset({4, 6, 7, 8, 9, 11})
_EXITED = re.compile(
    rf"^{_MPIRUN} has exited due to process rank (?P<rank>\d{{1,6}}) with PID \d+ on node (?P<host>\S+)"
)
_REPORTS: tuple[tuple[re.Pattern[str], Callable[[_Found], MpiReport]], ...] = (
    (re.compile(r"not enough slots available in the system to satisfy the (\d{1,7})"), _slots),
    (
        re.compile(
            r"^.{0,60}\bsh: (?:\d{1,5}: |line \d{1,5}: )?(\S*(?:orted|prted|hydra_pmi_proxy)): "
            r"(?:command )?(?:not found|No such file or directory)"
        ),
        _no_daemon,
    ),
    (re.compile(r"was unable to (?:launch|find) the specified (?:application|executable)"), _no_executable),
    (re.compile(r"MPI_ABORT was invoked on rank (\d{1,6}) in communicator"), _aborted),
    (re.compile(r"^abort\((?P<code>\d{1,9})\) on node \d{1,6} \(rank (?P<rank>\d{1,6}) in comm"), _aborted_mpich),
    (
        re.compile(
            rf"^{_MPIRUN} noticed that process rank (?P<rank>\d{{1,6}}) with PID \d+ on node (?P<host>\S{{1,253}}) "
            r"exited on signal (?P<signal>\d{1,2})"
        ),
        _signalled,
    ),
    (re.compile(r"detected that one or more processes exited with non-zero status"), _exited),
    (re.compile(r"^= +PID \d+ RUNNING AT (?P<host>\S{1,253})"), _ended_mpich),
    (re.compile(r"(?:ORTE|PRTE) has lost communication with a remote daemon"), _lost),
    (re.compile(r"(?:ORTE|PRTE) was unable to reliably start one or more daemons"), _not_started),
    (
        re.compile(r"\*\*\* An error occurred in Socket closed|An MPI communication peer process has unexp"),
        _disconnected,
    ),
)
"""mpirun writes several of them; the first one of this table that is in the log explains most."""
