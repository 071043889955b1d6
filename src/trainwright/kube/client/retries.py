"""Decides whether and when a request is sent again.

A request that the server has certainly not executed is always sent again: there was no connection, or the status was
429, or 503 with Retry-After. A request that it may have executed (a broken connection, another 5xx) is sent again only
if it is idempotent: reads, replacements, deletions and patches other than JSON patches. A create is not: repeated, it
would fail with AlreadyExists, or create a second object if it has a `generateName`. A request that timed out is not
sent again: the caller has waited long enough.
"""

from trainwright.kube.client.requests import Failure, Request, Response
from trainwright.kube.client.responses import retry_after

_MOST_ATTEMPTS = 6
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 5.0
_LONGEST_RETRY_AFTER = 30.0


def retry_delay(request: Request, outcome: Response | Failure, *, attempt: int, jitter: float) -> float | None:
    """Seconds until the request is sent again, or None if it is not.

    `attempt` counts from 0, `jitter` is a random number in [0, 1).
    """
    if attempt + 1 >= _MOST_ATTEMPTS:
        return None
    wanted = retry_after(outcome.headers) if isinstance(outcome, Response) else None
    if not _is_retriable(request, outcome, has_retry_after=wanted is not None):
        return None
    pause = backoff(attempt, jitter=jitter, first=_FIRST_DELAY, longest=_LONGEST_DELAY)
    if wanted is None:
        return pause
    if wanted > _LONGEST_RETRY_AFTER:
        return None
    # Never early. Many clients get the same Retry-After, so the jitter spreads their requests over about the same time
    # again.
    return wanted + jitter * min(wanted, _LONGEST_DELAY) + pause


def _is_retriable(request: Request, outcome: Response | Failure, *, has_retry_after: bool) -> bool:
    if isinstance(outcome, Failure):
        return outcome is Failure.NOT_CONNECTED or (outcome is Failure.BROKEN and request.idempotent)
    if outcome.status == 429:
        return True
    if outcome.status == 503:
        return has_retry_after or request.idempotent
    return outcome.status in {500, 502, 504} and request.idempotent


def backoff(attempt: int, *, jitter: float, first: float, longest: float) -> float:
    """Exponential back-off with jitter: between half and all of the nominal delay."""
    nominal = min(first * 2 ** min(attempt, 60), longest)
    return float(nominal * (0.5 + 0.5 * jitter))
