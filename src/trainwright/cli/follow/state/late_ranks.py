"""Ranks that started again after the first rank had succeeded: they wait for a peer that never comes back. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trainwright.objects.kinds.pods import Pod
from trainwright.objects.times import unix_seconds

_PATIENCE_SECONDS = 10.0
"""A rank that has something else to do than to join its peers has often ended by then."""
_ROUNDING_SECONDS = 1.0
"""Times in the status of a pod are whole seconds."""


@dataclass(frozen=True, slots=True)
class LateRank:
    rank: str
    exit_code: int | None
    """How the run before ended; None if the pod was replaced."""
    first: str
    succeeded_at: float


def late_ranks(pods: Sequence[tuple[str, Pod]], now: float) -> list[LateRank]:
    """`pods` are those of each rank in order: the others join the first one."""
    if not pods or pods[0][1].phase != "Succeeded":
        return []
    first, pod = pods[0]
    ends = [status.state.terminated for status in pod.status.container_statuses if status.state.terminated]
    times = [unix_seconds(end.finished_at) for end in ends]
    succeeded_at = max((time for time in times if time), default=None)
    return [] if succeeded_at is None else list(_late(pods[1:], first, succeeded_at, now))


def _late(pods: Iterable[tuple[str, Pod]], first: str, succeeded_at: float, now: float) -> Iterator[LateRank]:
    for rank, pod in pods:
        created = unix_seconds(pod.metadata.creation_timestamp) or 0.0
        for status in pod.status.container_statuses:
            running, before = status.state.running, status.last_state.terminated
            started = unix_seconds(running.started_at) if running else None
            if started is None or now - started < _PATIENCE_SECONDS:
                continue
            failed = before is not None and before.exit_code != 0
            if started > succeeded_at - _ROUNDING_SECONDS and (failed or created > succeeded_at):
                yield LateRank(rank, before.exit_code if before and failed else None, first, succeeded_at)
                break
