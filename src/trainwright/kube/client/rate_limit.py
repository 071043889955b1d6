"""How fast a client may ask: a token bucket, for clusters whose administrators want one on the client's side.

The API server's own priority and fairness protects it better, so that nothing is limited unless told.
"""


class RateLimit:
    """`qps` requests per second in the long run, `burst` of them at once. May be shared by several clients."""

    def __init__(self, qps: float, burst: int) -> None:
        if not qps > 0:
            raise ValueError(f"qps must be more than 0, not {qps:g}; leave out the limit to have none")
        if burst < 1:
            raise ValueError(f"burst must be at least 1, not {burst}")
        self._interval = 1 / qps
        self._head_start = (burst - 1) * self._interval
        self._next = float("-inf")

    def reserve(self, now: float) -> float:
        """Takes a place in the line; the seconds to wait until it is our turn. Places are handed out in order.

        `_next` is the moment of the next request if all kept the long-run pace; whoever is ahead of it by less than
        the burst goes at once.
        """
        turn = max(now, self._next - self._head_start)
        self._next = max(now, self._next) + self._interval
        return turn - now
