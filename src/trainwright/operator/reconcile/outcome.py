"""The four ways in which one reconcile of a job can end, and what each means for the queue."""

from dataclasses import dataclass
from typing import Self

from trainwright.kube.client.errors import ApiError


@dataclass(frozen=True)
class Done:
    """Nothing more to do until something changes."""


@dataclass(frozen=True)
class Again:
    """Look again after a while even if nothing changes: a deadline, or a watch that has to catch up."""

    seconds: float


@dataclass(frozen=True)
class Retry:
    """Something was in the way: try again, later each time, and not within the seconds that the server asks for."""

    reason: str
    seconds: float = 0.0

    @classmethod
    def after(cls, error: Exception, reason: str) -> Self:
        wanted = error.retry_after if isinstance(error, ApiError) else None
        return cls(reason, wanted or 0.0)


@dataclass(frozen=True)
class GiveUp:
    """Trying again cannot help: the job itself shows why, and only a change of it brings it back."""

    reason: str


Outcome = Done | Again | Retry | GiveUp
