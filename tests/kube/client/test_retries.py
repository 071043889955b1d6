"""Which requests are sent again, and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.kube.client.requests import Failure, Request, Response
from trainwright.kube.client.retries import backoff, retry_delay

GET = Request("GET", "/api/v1/pods")
POST = Request("POST", "/api/v1/pods", body=b"{}", idempotent=False)

jitters = st.floats(0, 1, exclude_max=True)


def answered(status: int, retry_after: str | None = None) -> Response:
    return Response(status, {} if retry_after is None else {"retry-after": retry_after}, b"")


def retried(request: Request, outcome: Response | Failure) -> bool:
    return retry_delay(request, outcome, attempt=0, jitter=0.5) is not None


@pytest.mark.parametrize(
    ("outcome", "get", "post"),
    [
        (Failure.NOT_CONNECTED, True, True),
        (Failure.BROKEN, True, False),
        (Failure.TIMED_OUT, False, False),
        (Failure.UNTRUSTED, False, False),
        (answered(429), True, True),
        (answered(429, "1"), True, True),
        (answered(503, "1"), True, True),
        (answered(503), True, False),
        (answered(500), True, False),
        (answered(502), True, False),
        (answered(504), True, False),
        (answered(200), False, False),
        (answered(201), False, False),
        (answered(404), False, False),
        (answered(409), False, False),
        (answered(410), False, False),
        (answered(422), False, False),
        (answered(501), False, False),
    ],
)
def test_only_requests_that_were_not_executed_are_always_retried(
    outcome: Response | Failure, get: bool, post: bool
) -> None:
    assert (retried(GET, outcome), retried(POST, outcome)) == (get, post)


@given(st.integers(0, 30), st.integers(0, 4), jitters)
def test_retry_is_never_earlier_than_retry_after(seconds: int, attempt: int, jitter: float) -> None:
    delay = retry_delay(POST, answered(429, str(seconds)), attempt=attempt, jitter=jitter)
    assert delay is not None
    assert seconds < delay <= seconds + min(seconds, 5) + 5


@pytest.mark.parametrize("seconds", [0, 1, 10])
def test_retries_after_the_same_retry_after_are_spread(seconds: int) -> None:
    first, last = (retry_delay(GET, answered(429, str(seconds)), attempt=1, jitter=jitter) for jitter in (0, 0.999))
    assert first
    assert last
    assert last - first >= max(min(seconds, 5), 0.09)


def test_long_retry_after_is_not_retried() -> None:
    assert retry_delay(GET, answered(429, "3600"), attempt=0, jitter=0) is None


def test_a_date_in_retry_after_falls_back_to_the_normal_pause() -> None:
    delay = retry_delay(GET, answered(503, "Sun, 15 Nov 2026 04:05:06 GMT"), attempt=0, jitter=0)
    assert delay == retry_delay(GET, answered(503), attempt=0, jitter=0)


@given(jitters)
def test_number_of_attempts_is_limited(jitter: float) -> None:
    delays = [retry_delay(GET, Failure.NOT_CONNECTED, attempt=attempt, jitter=jitter) for attempt in range(20)]
    attempts = 1 + delays.index(None)
    assert 2 <= attempts <= 10
    assert all(delay is None for delay in delays[attempts - 1 :])
    assert sum(filter(None, delays)) < 10


@given(st.integers(0, 5000), jitters)
def test_pauses_grow_up_to_a_limit_and_are_spread(attempt: int, jitter: float) -> None:
    pause = backoff(attempt, jitter=jitter, first=0.1, longest=30)
    assert 0.05 <= pause <= 30
    assert pause <= backoff(attempt + 1, jitter=jitter, first=0.1, longest=30)
    assert backoff(attempt, jitter=0, first=0.1, longest=30) * 2 >= pause
