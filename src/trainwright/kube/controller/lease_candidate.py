"""Who may lead, decided from a Lease and from one's own clock; the part of leader election that does no I/O.

`election` moves what is decided here. The argument that no two ever lead at once is here as a whole: a leader believes
in itself for `renew_seconds` from the moment at which it *sent* its last successful write; others count the lease's
longer time from the moment at which they *saw* that write, which is later, and never look at anybody else's clock.
"""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from trainwright.objects import Object
from trainwright.objects.resources import LEASES
from trainwright.objects.times import format_micro_time


@dataclass(frozen=True, slots=True)
class Sighting:
    """A Lease as it was seen last, and since when by our own clock its holder has shown no sign of life.

    One that is `gone` was deleted; its holder may still believe in it, so that it counts until it has run out.
    """

    lease: Object
    since: float
    gone: bool = False

    @property
    def holder(self) -> str:
        return str(_spec(self.lease).get("holderIdentity") or "")

    @property
    def written_at(self) -> str:
        """The moment that the writer put in, by its own clock: the mark by which we know our own writes."""
        return str(_spec(self.lease).get("renewTime") or "")

    def expires(self, default_seconds: float) -> float:
        """What the holder asked for counts, not what we would have asked for."""
        return self.since + float(_spec(self.lease).get("leaseDurationSeconds") or default_seconds)


@dataclass(frozen=True, slots=True)
class Acquire:
    """Nobody holds it: whoever writes first leads."""


@dataclass(frozen=True, slots=True)
class Renew:
    """It is ours."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody else holds it, for this many seconds unless there is another sign of life."""

    seconds: float


def see(before: Sighting | None, lease: Object | None, now: float) -> Sighting | None:
    """What is known after looking again. Only a write to the spec is a sign of life of the holder."""
    if lease is None:
        return replace(before, gone=True) if before and before.holder else None
    if before and not before.gone and _spec(before.lease) == _spec(lease):
        return Sighting(lease, before.since)
    return Sighting(lease, now)


def decide(
    sighting: Sighting | None, *, identity: str, claims: frozenset[str], now: float, default_seconds: float
) -> Acquire | Renew | Wait:
    """`claims` are the marks of our own writes that may have been carried out.

    An identity that equals ours proves nothing: two processes may have been given the same one.
    """
    if sighting is None or not sighting.holder:
        return Acquire()
    if _is_ours(sighting, identity, claims):
        return Renew()
    left = sighting.expires(default_seconds) - now
    return Wait(left) if left > 0 else Acquire()


@dataclass(frozen=True, slots=True)
class Claim:
    """A write that makes us the leader if the server takes it: a new Lease, or this one if it is still unchanged."""

    lease: Object
    creates: bool
    sent: float
    mark: str


class Candidacy:
    """One candidate: what it has seen, what it has written, and until when it may believe that it leads."""

    def __init__(self, *, namespace: str, name: str, identity: str, lease_seconds: float, renew_seconds: float) -> None:
        self._metadata: Object = {"name": name, "namespace": namespace}
        self._identity = identity
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._claims: frozenset[str] = frozenset()
        self._last_written: datetime | None = None
        self.sighting: Sighting | None = None
        self.leads_until = -math.inf

    @property
    def holder(self) -> str:
        """Who holds the lease as far as we know; empty if nobody does."""
        return self.sighting.holder if self.sighting and not self.sighting.gone else ""

    @property
    def may_hold(self) -> bool:
        """Whether a write of ours may stand in the lease, so that giving it back makes sense."""
        return bool(self._claims)

    def leads(self, now: float) -> bool:
        return now < self.leads_until

    def see(self, lease: Object | None, now: float) -> Acquire | Renew | Wait:
        self.sighting = see(self.sighting, lease, now)
        return self.decide(now)

    def decide(self, now: float) -> Acquire | Renew | Wait:
        return decide(
            self.sighting,
            identity=self._identity,
            claims=self._claims,
            now=now,
            default_seconds=self._lease_seconds,
        )

    def claim(self, now: float, wall: datetime) -> Claim:
        """The write that acquires or renews; from now on it may stand in the lease, whatever becomes of the answer."""
        if self._last_written is not None and wall <= self._last_written:
            # The mark must differ from that of every other write of ours, even if the clock stands still.
            wall = self._last_written + timedelta(microseconds=1)
        self._last_written = wall
        mark = format_micro_time(wall)
        self._claims |= {mark}
        known = self.sighting
        base: Object = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": self._metadata}
        if there := known is not None and not known.gone:
            base = known.lease
        before = _spec(known.lease) if known else {}
        goes_on = known is not None and known.holder == self._identity
        spec = {
            **_spec(base),
            "holderIdentity": self._identity,
            "leaseDurationSeconds": math.ceil(self._lease_seconds),
            "acquireTime": (goes_on and before.get("acquireTime")) or mark,
            "renewTime": mark,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (known is not None and not goes_on),
        }
        return Claim({**base, "spec": spec}, creates=not there, sent=now, mark=mark)

    def confirm(self, claim: Claim, answer: Object, now: float) -> None:
        """The server took it."""
        self._claims = frozenset({claim.mark})
        self.leads_until = claim.sent + self._renew_seconds
        self.sighting = Sighting(answer, now)

    def resign(self) -> None:
        """Stops believing, at once; what was written may still stand in the lease."""
        self.leads_until = -math.inf

    def farewell(self) -> Object | None:
        """The lease without a holder, for others to take at once; None if it is not ours to give back."""
        seen = self.sighting
        if seen is None or seen.gone or not _is_ours(seen, self._identity, self._claims):
            return None
        return {**seen.lease, "spec": {**_spec(seen.lease), "holderIdentity": "", "leaseDurationSeconds": 1}}

    def forget_claims(self) -> None:
        """After a farewell: nothing of ours stands in the lease any more."""
        self._claims = frozenset()


def _is_ours(sighting: Sighting, identity: str, claims: frozenset[str]) -> bool:
    return sighting.holder == identity and sighting.written_at in claims


def _spec(lease: Object) -> Object:
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}
