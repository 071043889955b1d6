"""Whether and when a request is sent again: a pure decision, shared by both clients and by all that back off.

What certainly was not carried out is tried again, whatever it is: there was no connection, or the server said 429, or
503 with a time to come back. What may have been carried out (a broken connection, another 5xx) is tried again only if
doing it twice is doing it once: reads, replacements, deletions and patches other than JSON patches. A create is none of
these: repeated, it would say AlreadyExists about its own work, or with `generateName` make two; its caller has to look.
What ran out of time is not tried again: the caller has waited long enough.
"""

from trainwright.kube.client.requests import Failure, Request, Response
from trainwright.kube.client.responses import retry_after

_MOST_ATTEMPTS = 6
_FIRST_DELAY, _LONGEST_DELAY = 0.1, 5.0
_LONGEST_RETRY_AFTER = 30.0


def retry_delay(request: Request, outcome: Response | Failure, *, attempt: int, jitter: float) -> float | None:
    """Seconds to wait before the request is sent again, or None if its outcome stands.

    `attempt` counts from 0, `jitter` is a random number in [0, 1).
    """
    if attempt + 1 >= _MOST_ATTEMPTS:
        return None
    wanted = retry_after(outcome.headers) if isinstance(outcome, Response) else None
    if not _worth_retrying(request, outcome, server_said_when=wanted is not None):
        return None
    pause = backoff(attempt, jitter=jitter, first=_FIRST_DELAY, longest=_LONGEST_DELAY)
    if wanted is None:
        return pause
    if wanted > _LONGEST_RETRY_AFTER:
        return None
    # Never early; and a whole herd was told the same number, so that it must spread over about as long again.
    return wanted + jitter * min(wanted, _LONGEST_DELAY) + pause


def _worth_retrying(request: Request, outcome: Response | Failure, *, server_said_when: bool) -> bool:
    if isinstance(outcome, Failure):
        return outcome is Failure.NOT_CONNECTED or (outcome is Failure.BROKEN and request.repeatable)
    if outcome.status == 429:
        return True
    if outcome.status == 503:
        return server_said_when or request.repeatable
    return outcome.status in {500, 502, 504} and request.repeatable


def backoff(attempt: int, *, jitter: float, first: float, longest: float) -> float:
    """Exponential, between half and all of the nominal delay."""
    nominal = min(first * 2 ** min(attempt, 60), longest)
    return float(nominal * (0.5 + 0.5 * jitter))
