"""The decisions of leader election, without I/O: from the observed Lease and the candidate's own clock.

Why there are never two leaders: a leader considers itself the leader for `renew_seconds` after it *sent* its last
successful write. Other candidates wait for the lease's duration, which is longer, after they *observed* that write,
which is later. No candidate uses the clock of another one.
"""

import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from trainwright.objects import Object
from trainwright.objects.resources import LEASES
from trainwright.objects.times import format_micro_time


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """The last observed Lease, and since when, by our own clock, its holder has not renewed it.

    A `deleted` one counts until it expires: its holder may not know of the deletion yet.
    """

    lease: Object
    since: float
    deleted: bool = False

    @property
    def holder(self) -> str:
        return str(_spec(self.lease).get("holderIdentity") or "")

    @property
    def renew_time(self) -> str:
        """By the clock of the writer: a candidate recognises its own writes by it."""
        return str(_spec(self.lease).get("renewTime") or "")

    def expires(self, default_seconds: float) -> float:
        """The duration in the lease counts, not our own."""
        return self.since + float(_spec(self.lease).get("leaseDurationSeconds") or default_seconds)


@dataclass(frozen=True, slots=True)
class Acquire:
    """The lease is free: the first candidate to write it becomes the leader."""


@dataclass(frozen=True, slots=True)
class Renew:
    """This candidate holds the lease."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Another candidate holds the lease, which expires in `seconds` unless it is renewed."""

    seconds: float


def observe(before: ObservedLease | None, lease: Object | None, now: float) -> ObservedLease | None:
    """The new observation. Only a change of the spec is a renewal."""
    if lease is None:
        return replace(before, deleted=True) if before and before.holder else None
    if before and not before.deleted and _spec(before.lease) == _spec(lease):
        return ObservedLease(lease, before.since)
    return ObservedLease(lease, now)


def decide(
    observed: ObservedLease | None, *, identity: str, own_writes: frozenset[str], now: float, default_seconds: float
) -> Acquire | Renew | Wait:
    """`own_writes` are the renewTimes of this candidate's writes that the server may have accepted.

    The identity alone does not suffice: two processes may have the same one.
    """
    if observed is None or not observed.holder:
        return Acquire()
    if _is_own(observed, identity, own_writes):
        return Renew()
    left = observed.expires(default_seconds) - now
    return Wait(left) if left > 0 else Acquire()


@dataclass(frozen=True, slots=True)
class LeaseWrite:
    """A write that acquires or renews the lease if the server accepts it: a create, or a replace of this version."""

    lease: Object
    creates: bool
    sent: float
    renew_time: str


class Candidate:
    """One candidate: the lease it has observed, its own writes, and until when it is the leader."""

    def __init__(self, *, namespace: str, name: str, identity: str, lease_seconds: float, renew_seconds: float) -> None:
        self._metadata: Object = {"name": name, "namespace": namespace}
        self._identity = identity
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._own_writes: frozenset[str] = frozenset()
        self._last_written: datetime | None = None
        self.observed: ObservedLease | None = None
        self.leader_until = -math.inf

    @property
    def holder(self) -> str:
        """The identity of the observed holder; empty if the lease is free."""
        return self.observed.holder if self.observed and not self.observed.deleted else ""

    @property
    def may_hold(self) -> bool:
        """True if the lease may contain a write of this candidate, so that it must be released."""
        return bool(self._own_writes)

    def is_leader(self, now: float) -> bool:
        return now < self.leader_until

    def observe(self, lease: Object | None, now: float) -> Acquire | Renew | Wait:
        self.observed = observe(self.observed, lease, now)
        return self.decide(now)

    def decide(self, now: float) -> Acquire | Renew | Wait:
        return decide(
            self.observed,
            identity=self._identity,
            own_writes=self._own_writes,
            now=now,
            default_seconds=self._lease_seconds,
        )

    def next_write(self, now: float, wall: datetime) -> LeaseWrite:
        """The write that acquires or renews the lease. The lease may contain it even if the response is lost."""
        if self._last_written is not None and wall <= self._last_written:
            # The renewTimes of all our writes must differ, even if the clock stands still.
            wall = self._last_written + timedelta(microseconds=1)
        self._last_written = wall
        renew_time = format_micro_time(wall)
        self._own_writes |= {renew_time}
        known = self.observed
        base: Object = {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": self._metadata}
        if exists := known is not None and not known.deleted:
            base = known.lease
        before = _spec(known.lease) if known else {}
        is_renewal = known is not None and known.holder == self._identity
        spec = {
            **_spec(base),
            "holderIdentity": self._identity,
            "leaseDurationSeconds": math.ceil(self._lease_seconds),
            "acquireTime": (is_renewal and before.get("acquireTime")) or renew_time,
            "renewTime": renew_time,
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (known is not None and not is_renewal),
        }
        return LeaseWrite({**base, "spec": spec}, creates=not exists, sent=now, renew_time=renew_time)

    def confirm(self, write: LeaseWrite, response: Object, now: float) -> None:
        """The server has accepted the write."""
        self._own_writes = frozenset({write.renew_time})
        self.leader_until = write.sent + self._renew_seconds
        self.observed = ObservedLease(response, now)

    def stop_leading(self) -> None:
        """Takes effect at once, although the lease may still name this candidate."""
        self.leader_until = -math.inf

    def released(self) -> Object | None:
        """The lease without a holder, to be written on release; None if this candidate does not hold it."""
        observed = self.observed
        if observed is None or observed.deleted or not _is_own(observed, self._identity, self._own_writes):
            return None
        return {**observed.lease, "spec": {**_spec(observed.lease), "holderIdentity": "", "leaseDurationSeconds": 1}}

    def forget_writes(self) -> None:
        """After a release: the lease no longer contains a write of this candidate."""
        self._own_writes = frozenset()


def _is_own(observed: ObservedLease, identity: str, own_writes: frozenset[str]) -> bool:
    return observed.holder == identity and observed.renew_time in own_writes


def _spec(lease: Object) -> Object:
    spec = lease.get("spec")
    return spec if isinstance(spec, dict) else {}
