"""What can go wrong between a client and an API server, and a seeded choice of it for every request.

The choice depends on the seed, the request and how often the same one came before, not on the order in which requests
of different objects arrive, nor on the name of the namespace, which tells how many tests ran before: so a run can be
repeated as far as the operator itself repeats its requests.
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
    # The server never hears of the request.
    CONFLICT = "409 instead of the write"
    EXPIRED = "410"
    TOO_MANY = "429 without Retry-After"
    TOO_MANY_FOR_NOW = "429 with Retry-After"
    INTERNAL = "500"
    BAD_GATEWAY = "502"
    UNAVAILABLE = "503"
    GATEWAY_TIMEOUT = "504"
    RESET = "connection reset before the server heard of it"
    SILENCE = "no answer, and the server heard nothing"
    # The server does it, and the client does not learn how that went.
    LOST_RESET = "connection reset after the server did it"
    LOST_HALF = "half of the answer after the server did it"
    LOST_INTERNAL = "500 after the server did it"
    LOST_GATEWAY_TIMEOUT = "504 after the server did it"
    LOST_SILENCE = "no answer after the server did it"
    # To a stream that was opened.
    EXPIRED_EVENT = "410 as an event of the watch"
    INTERNAL_EVENT = "500 as an event of the watch"
    CUT_BETWEEN = "watch cut between two events"
    CUT_WITHIN = "watch cut within an event"
    END = "watch ended by the server at once"
    STALE = "events of the watch come late"
    DRIP = "events of the watch come in small pieces"
    # To everybody.
    OUTAGE = "nobody listens for a while"


class Act(Enum):
    """What a request asks for, as far as faults go."""

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
"""The server did what was asked all the same."""

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

POSSIBLE: Mapping[Act, tuple[Fault, ...]] = MappingProxyType(
    {
        Act.GET: (*_ANYWHERE, Fault.LOST_RESET, Fault.LOST_HALF),
        Act.LIST: (*_ANYWHERE, Fault.EXPIRED, Fault.LOST_RESET, Fault.LOST_HALF),
        Act.WATCH: (*_ANYWHERE, Fault.EXPIRED, *sorted(STREAM)),
        # What is asked for twice because the answer was lost is where things go wrong, so those weigh double.
        Act.WRITE: (*_ANYWHERE, Fault.CONFLICT, *sorted(LOST - {Fault.LOST_SILENCE}) * 2),
    }
)

_SILENCES = (Fault.SILENCE, Fault.LOST_SILENCE)
_RARE = 0.01
"""The share of faults that cost everybody a long time: silences and outages."""


@dataclass(frozen=True)
class Choice:
    """One fault for one request. `after` is how many events of a stream pass before it, `share` a number in [0, 1)
    for whatever the fault leaves open."""

    fault: Fault
    after: int
    share: float


_NAMESPACE = re.compile("/namespaces/[^/]+")


class FaultScript:
    """Gives about `rate` of all requests a fault, and every watch. Events get few: nothing depends on them."""

    def __init__(self, seed: int, *, rate: float) -> None:
        self._seed = seed
        self._rate = rate
        self._seen: Counter[str] = Counter()

    def choose(self, method: str, path: str, query: str) -> Choice | None:
        """None: the request passes unharmed."""
        act = act_of(method, path, query)
        request = f"{method} {act.value} {_NAMESPACE.sub('/namespaces/*', path)}"
        self._seen[request] += 1
        # Each request has dice of its own.
        dice = random.Random(f"{self._seed} {request} {self._seen[request]}")
        # There are few watches, and they are long.
        rate = self._rate / 4 if path.endswith("/events") else self._rate
        if act is not Act.WATCH and dice.random() >= rate:
            return None
        return Choice(self._fault(act, dice), after=dice.randrange(3), share=dice.random())

    def _fault(self, act: Act, dice: random.Random) -> Fault:
        if dice.random() < _RARE:
            return dice.choice((*_SILENCES, Fault.OUTAGE) if act is Act.WRITE else (Fault.SILENCE, Fault.OUTAGE))
        return dice.choice(POSSIBLE[act])


def act_of(method: str, path: str, query: str) -> Act:
    if method != "GET":
        return Act.WRITE
    if parse_qs(query).get("watch", ["false"])[0] in {"true", "1"}:
        return Act.WATCH
    # /api/v1/PLURAL and /apis/GROUP/VERSION/PLURAL, with namespaces/NAME before the plural or without.
    words = path.strip("/").split("/")
    rest = words[2:] if words[0] == "api" else words[3:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    return Act.LIST if len(rest) == 1 else Act.GET


_REASONS = {
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def status_of(fault: Fault) -> Object:
    """The metav1.Status that a server would send with it."""
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
