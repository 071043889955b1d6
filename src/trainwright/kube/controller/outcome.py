"""The four outcomes of a reconciliation and what each means for the work queue."""

from dataclasses import dataclass
from typing import Self

from trainwright.kube.client.errors import ApiError


@dataclass(frozen=True)
class Done:
    """Nothing is left to do until the object or one of its dependents changes."""


@dataclass(frozen=True)
class RequeueAfter:
    """Reconcile again after a time even if nothing changes, for example at a deadline."""

    seconds: float


@dataclass(frozen=True)
class Retry:
    """The reconciliation failed: repeat it with a growing back-off, and not within the seconds that the server asks
    for."""

    reason: str
    seconds: float = 0.0

    @classmethod
    def after(cls, error: Exception, reason: str) -> Self:
        """Honours the Retry-After of the server's response."""
        wanted = error.retry_after if isinstance(error, ApiError) else None
        return cls(reason, wanted or 0.0)


@dataclass(frozen=True)
class Terminal:
    """Repeating cannot help: only a change of the object brings it back to the queue."""

    reason: str


Outcome = Done | RequeueAfter | Retry | Terminal
