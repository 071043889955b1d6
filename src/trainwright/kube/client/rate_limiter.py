"""A client-side rate limiter (--kube-api-qps, --kube-api-burst).

The API server's priority and fairness protects it better, so there is no limit by default.
"""


class RateLimiter:
    """A token bucket of `burst` requests, filled with `qps` requests per second. Several clients may share one."""

    def __init__(self, qps: float, burst: int) -> None:
        if not qps > 0:
            raise ValueError(f"qps must be more than 0, not {qps:g}; leave out the limit to have none")
        if burst < 1:
            raise ValueError(f"burst must be at least 1, not {burst}")
        self._interval = 1 / qps
        self._head_start = (burst - 1) * self._interval
        self._next = float("-inf")

    def reserve(self, now: float) -> float:
        """Takes a token and returns the seconds to wait for it.

        `_next` is the time of the next request at a steady rate. Requests may be ahead of it by the burst.
        """
        turn = max(now, self._next - self._head_start)
        self._next = max(now, self._next) + self._interval
        return turn - now
