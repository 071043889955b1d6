"""Faults between a client and an API server, and a seeded choice of one for every request.

The choice depends on the seed, the request and the number of equal requests before it. It does not depend on the order
of requests for different objects, nor on the namespace, whose name counts the tests of a run. So a run can be repeated
as far as the operator repeats its requests.
"""

import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from types import MappingProxyType
from urllib.parse import parse_qs

from trainwright.objects import Object


class Fault(StrEnum):
    # The request does not reach the server.
    CONFLICT = "409 instead of the write"
    EXPIRED = "410"
    TOO_MANY = "429 without Retry-After"
    TOO_MANY_FOR_NOW = "429 with Retry-After"
    INTERNAL = "500"
    BAD_GATEWAY = "502"
    UNAVAILABLE = "503"
    GATEWAY_TIMEOUT = "504"
    RESET = "connection reset, and the server got no request"
    SILENCE = "no answer, and the server got no request"
    # The server carries the request out, and the client does not get the answer.
    LOST_RESET = "connection reset after the server did it"
    LOST_HALF = "half of the answer after the server did it"
    LOST_INTERNAL = "500 after the server did it"
    LOST_GATEWAY_TIMEOUT = "504 after the server did it"
    LOST_SILENCE = "no answer after the server did it"
    # To an open stream.
    EXPIRED_EVENT = "410 as an event of the watch"
    INTERNAL_EVENT = "500 as an event of the watch"
    CUT_BETWEEN = "watch cut between two events"
    CUT_WITHIN = "watch cut within an event"
    END = "watch ended by the server at once"
    STALE = "events of the watch come late"
    DRIP = "events of the watch come in small pieces"
    # To all connections.
    OUTAGE = "the server is down for a while"


class Verb(Enum):
    """The kind of a request, as far as faults depend on it."""

    GET = "get"
    LIST = "list"
    WATCH = "watch"
    WRITE = "write"


STATUS_CODES: Mapping[Fault, int] = MappingProxyType(
    {
        Fault.CONFLICT: 409,
        Fault.EXPIRED: 410,
        Fault.TOO_MANY: 429,
        Fault.TOO_MANY_FOR_NOW: 429,
        Fault.INTERNAL: 500,
        Fault.BAD_GATEWAY: 502,
        Fault.UNAVAILABLE: 503,
        Fault.GATEWAY_TIMEOUT: 504,
        Fault.LOST_INTERNAL: 500,
        Fault.LOST_GATEWAY_TIMEOUT: 504,
        Fault.EXPIRED_EVENT: 410,
        Fault.INTERNAL_EVENT: 500,
    }
)

LOST = frozenset(
    {Fault.LOST_RESET, Fault.LOST_HALF, Fault.LOST_INTERNAL, Fault.LOST_GATEWAY_TIMEOUT, Fault.LOST_SILENCE}
)
"""The server has carried the request out."""

STREAM = frozenset(
    {
        Fault.EXPIRED_EVENT,
        Fault.INTERNAL_EVENT,
        Fault.CUT_BETWEEN,
        Fault.CUT_WITHIN,
        Fault.END,
        Fault.STALE,
        Fault.DRIP,
    }
)

_ANYWHERE = (
    Fault.TOO_MANY,
    Fault.TOO_MANY_FOR_NOW,
    Fault.INTERNAL,
    Fault.BAD_GATEWAY,
    Fault.UNAVAILABLE,
    Fault.GATEWAY_TIMEOUT,
    Fault.RESET,
)

POSSIBLE: Mapping[Verb, tuple[Fault, ...]] = MappingProxyType(
    {
        Verb.GET: (*_ANYWHERE, Fault.LOST_RESET, Fault.LOST_HALF),
        Verb.LIST: (*_ANYWHERE, Fault.EXPIRED, Fault.LOST_RESET, Fault.LOST_HALF),
        Verb.WATCH: (*_ANYWHERE, Fault.EXPIRED, *sorted(STREAM)),
        # Requests that are repeated because the answer was lost find the most defects: they weigh double.
        Verb.WRITE: (*_ANYWHERE, Fault.CONFLICT, *sorted(LOST - {Fault.LOST_SILENCE}) * 2),
    }
)

_SILENCES = (Fault.SILENCE, Fault.LOST_SILENCE)
_RARE = 0.01
"""The share of faults that block all requests for a long time: silences and outages."""


@dataclass(frozen=True)
class Choice:
    """One fault for one request. `after` is the number of events of a stream that pass before it; `share`, a number in
    [0, 1), scales delays and cuts."""

    fault: Fault
    after: int
    share: float


_NAMESPACE = re.compile("/namespaces/[^/]+")


class FaultScript:
    """Gives every watch and about `rate` of all other requests a fault; fewer to Events, which nothing depends on."""

    def __init__(self, seed: int, *, rate: float) -> None:
        self._seed = seed
        self._rate = rate
        self._seen: Counter[str] = Counter()

    def choose(self, method: str, path: str, query: str) -> Choice | None:
        """None: the request passes unharmed."""
        verb = verb_of(method, path, query)
        request = f"{method} {verb.value} {_NAMESPACE.sub('/namespaces/*', path)}"
        self._seen[request] += 1
        dice = random.Random(f"{self._seed} {request} {self._seen[request]}")
        rate = self._rate / 4 if path.endswith("/events") else self._rate
        if verb is not Verb.WATCH and dice.random() >= rate:
            return None
        return Choice(self._fault(verb, dice), after=dice.randrange(3), share=dice.random())

    def _fault(self, verb: Verb, dice: random.Random) -> Fault:
        if dice.random() < _RARE:
            return dice.choice((*_SILENCES, Fault.OUTAGE) if verb is Verb.WRITE else (Fault.SILENCE, Fault.OUTAGE))
        return dice.choice(POSSIBLE[verb])


def verb_of(method: str, path: str, query: str) -> Verb:
    if method != "GET":
        return Verb.WRITE
    if parse_qs(query).get("watch", ["false"])[0] in {"true", "1"}:
        return Verb.WATCH
    # /api/v1/PLURAL and /apis/GROUP/VERSION/PLURAL, with namespaces/NAME before the plural or without.
    words = path.strip("/").split("/")
    rest = words[2:] if words[0] == "api" else words[3:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return Verb.LIST if len(rest) == 1 else Verb.GET


_REASONS = {
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def status_of(fault: Fault) -> Object:
    """The metav1.Status that a server sends with it."""
    code = STATUS_CODES[fault]
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"injected fault: {fault}",
        "reason": _REASONS.get(code, ""),
        "code": code,
    }
