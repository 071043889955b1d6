"""Which endpoint gets the next connection: in turn, or the same one for a client with sessionAffinity. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainwright.cluster.proxy.forwarded_ports import Endpoint

_MAX_CLIENTS = 10_000


@dataclass(slots=True)
class Balancer:
    endpoints: Sequence[Endpoint] = ()
    affinity_seconds: int | None = None
    _next: int = 0
    _clients: dict[str, tuple[Endpoint, float]] = field(default_factory=dict)
    """By the client's address: its endpoint, and when it was last used."""

    def update(self, endpoints: Sequence[Endpoint], affinity_seconds: int | None) -> None:
        self.endpoints, self.affinity_seconds = endpoints, affinity_seconds
        known = set(endpoints) if affinity_seconds is not None else set()
        self._clients = {client: used for client, used in self._clients.items() if used[0] in known}

    def candidates(self, client: str, now: float) -> list[Endpoint]:
        """The endpoints in the order in which to try them."""
        if not self.endpoints:
            return []
        start = self._next % len(self.endpoints)
        self._next = start + 1
        ordered = [*self.endpoints[start:], *self.endpoints[:start]]
        if self.affinity_seconds is not None and (used := self._clients.get(client)):
            endpoint, last = used
            if now - last < self.affinity_seconds and endpoint in ordered:
                return [endpoint, *(other for other in ordered if other != endpoint)]
        return ordered

    def connected(self, client: str, endpoint: Endpoint, now: float) -> None:
        if self.affinity_seconds is None:
            return
        self._clients.pop(client, None)
        self._clients[client] = (endpoint, now)
        if len(self._clients) > _MAX_CLIENTS:
            del self._clients[next(iter(self._clients))]
