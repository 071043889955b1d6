"""The four ways in which one reconcile of a job can end, and what each means for the queue."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    """Nothing more to do until something changes."""


@dataclass(frozen=True)
class Again:
    """Look again after a while even if nothing changes: a deadline, or a watch that has to catch up."""

    seconds: float


@dataclass(frozen=True)
class Retry:
    """Something was in the way: try again, later each time."""

    reason: str


@dataclass(frozen=True)
class GiveUp:
    """Trying again cannot help: the job itself shows why, and only a change of it brings it back."""

    reason: str


Outcome = Done | Again | Retry | GiveUp
