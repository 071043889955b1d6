"""Why a job failed: the rank that failed first, among ranks that failed because of it, the cause and what to do.

`first_failure` compares all runs of the job's containers. A rank that lost the connection to a peer or waited for it in
vain only followed. Among the others the earliest failed first: its time is that of its traceback if it has one, because
the process may end later than its followers, else that of its end. Where the times do not decide, no rank is named.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trainwright.insight.cause_by_peer import unreachable_peer
from trainwright.insight.log_exceptions import MAX_LINE
from trainwright.insight.process_end import Cause, describe_end, last_lines
from trainwright.insight.suspects_in_run import Suspect, suspects_of
from trainwright.objects.kinds.container_runs import ContainerRun, Line


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    rank: str | None
    """The rank that failed first; None if it is unknown."""
    cause: Cause
    summary: str
    """The cause in one line, without the rank."""
    advice: str = ""
    """What to do; empty if there is nothing to add to the cause."""
    pod: str = ""
    container: str = ""
    exit_code: int | None = None
    finished_at: float | None = None
    process: str = ""
    """`local rank 1`, if torchrun started several processes in the container; `process 1 on worker-1`, if mpirun did in
    workers."""
    evidence: tuple[str, ...] = ()
    """The lines of the log that show the cause."""
    followers: tuple[str, ...] = ()
    """The ranks that failed because of it, or were ended by clean-up."""
    alike: tuple[str, ...] = ()
    """Further ranks that failed by themselves with the same cause."""
    certain: bool = True
    """False if a later end of another rank may change the diagnosis."""

    @property
    def reason(self) -> str:
        """The cause as Kubernetes writes reasons: `MissingModule`."""
        return "".join(word.capitalize() for word in self.cause.split("-"))

    @property
    def headline(self) -> str:
        """`worker-1 failed first: ValueError: boom`"""
        if self.rank is None:
            return f"the first failing rank is unknown: {self.summary}"
        where = f"{self.rank} ({self.process})" if self.process else self.rank
        return f"{where} failed first: {self.summary}"


def first_failure(runs: Iterable[ContainerRun], *, job_failed_at: float = math.inf) -> Diagnosis | None:
    """None if no run has failed. Give it all runs, of finished and running containers, also those that succeeded.

    A run that a signal ended after `job_failed_at`, in seconds since the epoch, was ended by clean-up: the job may have
    failed because of its deadline.
    """
    known = [_with_short_lines(run) for run in runs]
    # An init container that failed before its rank's program ran was run again: a restart of the group ended it.
    started = {run.rank for run in known if not run.init}
    suspects = [suspect for run in known if not (run.init and run.rank in started) for suspect in suspects_of(run)]
    failed = _without_failed_hosts(
        [suspect for suspect in suspects if suspect.failed and not _was_replaced(suspect, known)]
    )
    incident = _last_incident(failed, job_failed_at)
    if not incident:
        return None
    ranks = list(dict.fromkeys(run.rank for run in known if not run.init or run.exit_code))
    own = _own_failures(incident, job_failed_at)
    if own:
        return _first_of(own, incident, ranks)
    if all(suspect.was_stopped for suspect in incident):
        return None
    return _waited_for(incident, suspects, ranks)


def _with_short_lines(run: ContainerRun) -> ContainerRun:
    if all(len(line.text) <= MAX_LINE for line in run.lines):
        return run
    return replace(run, lines=tuple(line._replace(text=line.text[:MAX_LINE]) for line in run.lines))


_INCIDENT_SECONDS = 30.0
"""Failures of one incident follow each other within this time."""
_KILL_SECONDS = 0.25
"""The end of a killed process may be recorded this much after the end of a peer that noticed it."""
_LATE_SECONDS = 2.0
"""A rank that others waited for fails at least this much after them, if it fails at all."""
_EVIDENCE_LINES = 20
_LAST_LINES = 10


def _without_failed_hosts(failed: Sequence[Suspect]) -> list[Suspect]:
    """A process that ended with its worker has only followed, and so has mpirun."""
    ended = {suspect.run.pod for suspect in failed if not suspect.was_stopped}
    return [
        replace(suspect, by_peers=Cause.LOST_PEER) if suspect.host in ended - {suspect.run.pod} else suspect
        for suspect in failed
    ]


def _was_replaced(suspect: Suspect, runs: Sequence[ContainerRun]) -> bool:
    """True if the operator ended its pod by SIGTERM to start another one for the rank: the group was restarted."""
    run = suspect.run
    if suspect.exception is not None or suspect.explanation.cause is not Cause.TERMINATED or run.finished_at is None:
        return False
    # The runs of one pod have increasing numbers.
    return any(
        (other.rank, other.container) == (run.rank, run.container)
        and other is not run
        and other.number <= run.number
        and (other.finished_at is None or other.finished_at > run.finished_at)
        for other in runs
    )


def _last_incident(failed: Sequence[Suspect], job_failed_at: float) -> list[Suspect]:
    """The failures since the ranks were last restarted: a rank that fails again, or a failure after a long time, begins
    a new incident. Incidents in which ranks only lost their peers, or were only ended by signals as clean-up does,
    belong to the one before."""
    incidents: list[list[Suspect]] = []
    seen: set[tuple[str, str, str]] = set()
    last = -math.inf
    for suspect in sorted(failed, key=lambda suspect: (suspect.onset, suspect.run.number)):
        key = (suspect.run.rank, suspect.run.container, suspect.name)
        if key in seen or suspect.onset > last + _INCIDENT_SECONDS:
            incidents.append([])
            seen = set()
        seen.add(key)
        last = suspect.onset
        incidents[-1].append(suspect)
    merged: list[Suspect] = []
    for incident in reversed(incidents):
        merged = [*incident, *merged]
        by_clean_up = all(
            suspect.was_stopped and (suspect.end > job_failed_at or job_failed_at == math.inf) for suspect in incident
        )
        if _own_failures(incident, job_failed_at) and not by_clean_up:
            break
    return merged


def _own_failures(incident: Sequence[Suspect], job_failed_at: float) -> list[Suspect]:
    """Those that failed neither because of a peer nor by clean-up, which begins when a container or the job failed."""
    first_end = min((job_failed_at, *(suspect.end for suspect in incident if not suspect.was_stopped)))
    own = []
    for suspect in incident:
        if suspect.by_peers is not None:
            continue
        slack = _KILL_SECONDS if suspect.explanation.cause is Cause.KILLED else 0.0 if suspect.run.exact else -1.0
        if not suspect.was_stopped or suspect.end <= first_end + slack:
            own.append(suspect)
    return own


def _first_of(own: Sequence[Suspect], incident: Sequence[Suspect], ranks: Sequence[str]) -> Diagnosis:
    ordered = sorted(own, key=lambda suspect: (suspect.onset, suspect.run.rank))
    first = ordered[0]
    tied = [suspect for suspect in ordered if _may_be_earlier(suspect, first)]
    clear = [suspect for suspect in tied if not suspect.is_vague] or tied
    first = clear[0]
    alike = [suspect for suspect in own if _alike(suspect, first) and suspect.run.rank != first.run.rank]
    # Ranks that fail alike by themselves have the same mistake. An exit code alone does not show that.
    if any(
        suspect.run.rank != first.run.rank and (suspect.is_vague or not _alike(suspect, first)) for suspect in clear
    ):
        summary = "; ".join(f"{suspect.run.rank}: {suspect.explanation.summary}" for suspect in clear)
        return replace(_named(first, incident, ()), rank=None, summary=summary, certain=False, process="")
    if len(ranks) > 1 and first.exit_code == 1 and first.is_vague and first.log_is_unknown:
        # Programs end so after any error, also after that of a peer.
        summary = f"{first.run.rank} ended first, with {first.explanation.summary}; its log was not read"
        return replace(_named(first, incident, ()), rank=None, summary=summary, certain=False)
    return _named(first, incident, alike)


def _alike(one: Suspect, other: Suspect) -> bool:
    return one.explanation == other.explanation


def _may_be_earlier(one: Suspect, first: Suspect) -> bool:
    """Exact times decide; whole seconds do not if they are neighbours."""
    if one is first:
        return True
    if one.onset_is_exact and first.onset_is_exact:
        return False
    return one.onset < first.onset + 1.0


def _named(culprit: Suspect, incident: Sequence[Suspect], alike: Sequence[Suspect]) -> Diagnosis:
    same = _ranks(alike)
    others = sorted(rank for rank in _ranks(incident) if rank != culprit.run.rank and rank not in same)
    return Diagnosis(
        rank=culprit.run.rank,
        cause=culprit.explanation.cause,
        summary=culprit.explanation.summary,
        advice=culprit.explanation.advice,
        pod=culprit.run.pod,
        container=culprit.run.container,
        exit_code=culprit.exit_code,
        finished_at=culprit.run.finished_at,
        process=culprit.name,
        evidence=_evidence(culprit),
        followers=tuple(others),
        alike=tuple(same),
    )


def _waited_for(incident: Sequence[Suspect], suspects: Sequence[Suspect], ranks: Sequence[str]) -> Diagnosis:
    """Every failed rank reports another one: finds the rank that they lost or waited for."""
    reporting = [suspect for suspect in incident if suspect.by_peers is not None]
    first = reporting[0] if reporting else incident[0]
    if len(ranks) == 1:
        return _named(first, incident, ())
    waiting = [suspect for suspect in reporting if suspect.by_peers in {Cause.TIMEOUT, Cause.UNREACHABLE_PEER}]
    unreachable = _ranks([suspect for suspect in waiting if suspect.by_peers is Cause.UNREACHABLE_PEER])
    others = [rank for rank in ranks if rank not in _ranks(reporting)]
    if leaver := _early_leaver(reporting, suspects) or _lost_worker(reporting, suspects):
        return _named(leaver, incident, ())
    if len(unreachable) == 1 and len(_ranks(waiting)) > 1:
        # Its peers wait for it, so they are there, and only this rank does not find them.
        [culprit] = [suspect for suspect in waiting if suspect.run.rank == unreachable[0]][-1:]
        return _named(culprit, incident, ())
    if waiting and len(others) != 1:
        start = min(suspect.end for suspect in waiting)
        late = _ranks([suspect for suspect in reporting if suspect.onset > start + _LATE_SECONDS])
        others = others or late
    silent = [suspect for suspect in suspects if suspect.run.rank in others and not suspect.run.init]
    if waiting and len(others) == 1 and not any(suspect.log_is_unknown for suspect in silent):
        return _missing_rank(others[0], waiting, incident, suspects)
    summary = f"{_list(_ranks(reporting or incident))} {_REPORTS[first.by_peers]}: {first.explanation.summary}"
    unknown = _named(first, incident, ())
    return replace(
        unknown,
        rank=None,
        summary=summary,
        process="",
        followers=tuple(sorted(_ranks(incident))),
        certain=bool(waiting) and not others,
    )


_REPORTS = {
    Cause.LOST_PEER: "lost the connection to another rank",
    Cause.TIMEOUT: "waited in vain for another rank",
    Cause.UNREACHABLE_PEER: "waited in vain for another rank",
    None: "ended",
}


def _early_leaver(reporting: Sequence[Suspect], suspects: Sequence[Suspect]) -> Suspect | None:
    """The rank that ended with exit code 0 before its peers lost it."""
    lost = [suspect.onset for suspect in reporting]
    ended = [
        suspect
        for suspect in suspects
        if suspect.exit_code == 0 and not suspect.run.init and suspect.run.finished_at is not None
    ]
    early = [
        suspect
        for suspect in ended
        if lost and suspect.end <= min(lost) + (_KILL_SECONDS if suspect.run.exact else 1.0)
    ]
    return early[0] if len(early) == 1 else None


def _lost_worker(reporting: Sequence[Suspect], suspects: Sequence[Suspect]) -> Suspect | None:
    """The end of the worker that mpirun lost, also of one that was deleted and has been replaced."""
    ended = [
        suspect
        for mpirun in reporting
        for suspect in suspects
        if suspect.run.pod == mpirun.host and mpirun.onset - _INCIDENT_SECONDS < suspect.end <= mpirun.end
    ]
    return max(ended, key=lambda suspect: suspect.end, default=None)


def _missing_rank(
    rank: str, waiting: Sequence[Suspect], incident: Sequence[Suspect], suspects: Sequence[Suspect]
) -> Diagnosis:
    last = next((suspect for suspect in reversed(suspects) if suspect.run.rank == rank), None)
    waiters = [waiter for waiter in _ranks(waiting) if waiter != rank]
    report = waiting[0].explanation
    if last is not None and (searching := unreachable_peer(last.run.lines)):
        return _named(replace(last, explanation=searching), incident, ())
    state = "" if last is None or last.exit_code is None else f" ({describe_end(last.exit_code)})"
    return Diagnosis(
        rank=rank,
        cause=Cause.TIMEOUT,
        summary=f"{_list(waiters)} waited for it in vain{state}: {report.summary}",
        advice="see what it did meanwhile; if it only needs longer, raise the timeout of init_process_group",
        pod=last.run.pod if last else "",
        container=last.run.container if last else "",
        exit_code=last.exit_code if last else None,
        finished_at=last.run.finished_at if last else None,
        evidence=_last_lines(last.run.lines) if last else (),
        followers=tuple(sorted(follower for follower in _ranks(incident) if follower != rank)),
    )


def _ranks(suspects: Iterable[Suspect]) -> list[str]:
    return list(dict.fromkeys(suspect.run.rank for suspect in suspects))


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "no rank"


def _evidence(suspect: Suspect) -> tuple[str, ...]:
    """The traceback, from its end if it is long; without one the last lines."""
    raised = suspect.exception
    if raised is None:
        lines = suspect.run.lines
        return _last_lines(lines[: suspect.process.first_line] if suspect.process else lines)
    block = [line.text.rstrip() for line in suspect.run.lines[raised.first_line : raised.last_line + 1]]
    end = len(block)
    while end > 1 and not block[end - 1].strip():
        end -= 1
    return tuple(block[:end][-_EVIDENCE_LINES:])


def _last_lines(lines: Sequence[Line]) -> tuple[str, ...]:
    return tuple(last_lines(lines, _LAST_LINES))
