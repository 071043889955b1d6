"""The token bucket, in fake time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.kube.client.rate_limiter import RateLimiter


def test_burst_is_immediate_and_then_rate_limited() -> None:
    limit = RateLimiter(qps=10, burst=3)
    waits = [limit.reserve(now=100.0) for _ in range(6)]
    assert waits == pytest.approx([0, 0, 0, 0.1, 0.2, 0.3])


def test_idle_time_refills_the_burst() -> None:
    limit = RateLimiter(qps=10, burst=3)
    for _ in range(5):
        limit.reserve(now=0.0)
    assert [limit.reserve(now=1000.0) for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


def test_burst_of_one_is_rate_limited_from_the_start() -> None:
    limit = RateLimiter(qps=2, burst=1)
    assert [limit.reserve(now=0.0) for _ in range(3)] == pytest.approx([0, 0.5, 1.0])


@given(
    st.floats(0.1, 1000),
    st.integers(1, 50),
    st.lists(st.floats(0, 2), min_size=1, max_size=100),
)
def test_rate_is_kept_and_no_request_waits_longer_than_needed(qps: float, burst: int, pauses: list[float]) -> None:
    limit = RateLimiter(qps, burst)
    now, sent = 0.0, []
    for pause in pauses:
        now += pause
        wait = limit.reserve(now)
        assert wait >= 0
        sent.append(now + wait)
    assert sent == sorted(sent)
    for first in range(len(sent)):
        for last in range(first, len(sent)):
            assert last - first + 1 <= burst + qps * (sent[last] - sent[first]) + 1e-6
    # Whoever had to wait was the one too many: a moment earlier there would have been more than allowed.
    for number, moment in enumerate(sent):
        if moment > sum(pauses[: number + 1]) + 1e-9:
            assert any(number - first + 1 >= burst + qps * (moment - sent[first]) - 1e-6 for first in range(number + 1))


@pytest.mark.parametrize(
    ("qps", "burst", "message"),
    [
        (0, 1, "qps must be more than 0, not 0; leave out the limit to have none"),
        (-1, 1, "qps must be more than 0"),
        (float("nan"), 1, "qps must be more than 0"),
        (1, 0, "burst must be at least 1, not 0"),
    ],
)
def test_invalid_limits_are_rejected(qps: float, burst: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RateLimiter(qps, burst)
