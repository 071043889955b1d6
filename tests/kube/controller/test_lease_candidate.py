"""The decisions of leader election, and that there are never two leaders, whatever the network does."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.servers.lease_server import LeaseServer
from trainwright.kube.client import requests, responses
from trainwright.kube.controller.lease_candidate import (
    Acquire,
    Candidate,
    LeaseWrite,
    ObservedLease,
    Renew,
    Wait,
    decide,
    observe,
)
from trainwright.objects import Object
from trainwright.objects.resources import LEASES

RENEW_TIME = "2026-11-15T04:05:06.000000Z"
NOW = datetime(2026, 11, 15, 4, 5, 6, tzinfo=UTC)


def lease(holder: str | None = "other", *, seconds: int | None = 15, version: str = "1", **spec: Any) -> Object:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": RENEW_TIME, **spec}
    return {"metadata": {"name": "l", "namespace": "n", "resourceVersion": version}, "spec": spec}


def candidate(identity: str = "me", *, lease_seconds: float = 15, renew_seconds: float = 10) -> Candidate:
    return Candidate(
        namespace="n", name="l", identity=identity, lease_seconds=lease_seconds, renew_seconds=renew_seconds
    )


@pytest.mark.parametrize(
    ("observed", "own_writes", "decision"),
    [
        (None, {RENEW_TIME}, Acquire()),
        (ObservedLease(lease(holder=""), 99.0), set(), Acquire()),
        (ObservedLease(lease(holder=None), 99.0), set(), Acquire()),
        (ObservedLease({"metadata": {}}, 99.0), set(), Acquire()),
        (ObservedLease({"metadata": {}, "spec": None}, 99.0), set(), Acquire()),
        (ObservedLease(lease(), 90.0), set(), Wait(5.0)),
        (ObservedLease(lease(seconds=60), 90.0), set(), Wait(50.0)),
        (ObservedLease(lease(seconds=None), 90.0), set(), Wait(5.0)),
        (ObservedLease(lease(), 85.0), set(), Acquire()),
        (ObservedLease(lease("me"), 0.0), {RENEW_TIME}, Renew()),
        (ObservedLease(lease("me"), 90.0), set(), Wait(5.0)),
        (ObservedLease(lease(), 90.0), {RENEW_TIME}, Wait(5.0)),
        (ObservedLease(lease(), 90.0, deleted=True), set(), Wait(5.0)),
        (ObservedLease(lease(), 80.0, deleted=True), set(), Acquire()),
        (ObservedLease(lease("me"), 90.0, deleted=True), {RENEW_TIME}, Renew()),
    ],
    ids=[
        "no lease",
        "released",
        "without a holder",
        "without a spec",
        "with an empty spec",
        "held",
        "held for longer than we would ask for",
        "held for a time that is not said",
        "run out",
        "ours",
        "of somebody with our name",
        "of somebody else who wrote in the same moment",
        "deleted, but its holder may not know yet",
        "deleted and run out",
        "ours, deleted",
    ],
)
def test_the_lease_and_our_own_clock_decide(
    observed: ObservedLease | None, own_writes: set[str], decision: Acquire | Renew | Wait
) -> None:
    assert decide(observed, identity="me", own_writes=frozenset(own_writes), now=100.0, default_seconds=15) == decision


def test_only_a_change_of_the_spec_is_a_renewal() -> None:
    first = observe(None, lease(), now=10)
    labelled = observe(first, lease(version="2"), now=20)
    renewed = observe(labelled, lease(version="3", renewTime="later"), now=30)
    assert first
    assert labelled
    assert renewed
    assert [first.since, labelled.since, renewed.since] == [10, 10, 30]
    assert labelled.lease["metadata"]["resourceVersion"] == "2"


def test_lease_that_exists_again_counts_from_now() -> None:
    deleted = observe(observe(None, lease(), now=10), None, now=12)
    assert deleted == ObservedLease(lease(), 10, deleted=True)
    assert observe(deleted, lease(), now=14) == ObservedLease(lease(), 14)


def test_a_free_lease_that_is_deleted_leaves_nothing_to_wait_for() -> None:
    assert observe(observe(None, lease(holder=""), now=10), None, now=12) is None


def test_first_write_creates_the_lease() -> None:
    write = candidate().next_write(now=5, wall=NOW)
    assert write == LeaseWrite(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "l", "namespace": "n"},
            "spec": {
                "holderIdentity": "me",
                "leaseDurationSeconds": 15,
                "acquireTime": RENEW_TIME,
                "renewTime": RENEW_TIME,
                "leaseTransitions": 0,
            },
        },
        creates=True,
        sent=5,
        renew_time=RENEW_TIME,
    )


def test_takeover_counts_a_transition_and_keeps_other_fields() -> None:
    me = candidate()
    me.observe({**lease(holder="", leaseTransitions=3, strategy="OldestEmulationVersion"), "kind": "Lease"}, now=5)
    write = me.next_write(now=5, wall=NOW)
    assert not write.creates
    assert write.lease["metadata"]["resourceVersion"] == "1"
    assert write.lease["spec"]["leaseTransitions"] == 4
    assert write.lease["spec"]["strategy"] == "OldestEmulationVersion"


def test_renewing_keeps_the_moment_of_acquisition() -> None:
    me = candidate()
    first = me.next_write(now=5, wall=NOW)
    me.confirm(first, {**first.lease, "metadata": {"resourceVersion": "1"}}, now=6)
    second = me.next_write(now=7, wall=NOW)
    assert second.lease["spec"]["leaseTransitions"] == 0
    assert second.lease["spec"]["acquireTime"] == RENEW_TIME
    assert second.renew_time > first.renew_time, "the clock stands still, and yet the writes can be told apart"


def test_leadership_counts_from_the_time_of_sending() -> None:
    me = candidate()
    assert not me.is_leader(0)
    write = me.next_write(now=5, wall=NOW)
    assert not me.is_leader(5)
    me.confirm(write, lease("me"), now=8)
    assert me.is_leader(14.9)
    assert not me.is_leader(15)


def test_only_an_own_lease_is_released() -> None:
    me = candidate()
    assert me.released() is None
    write = me.next_write(now=5, wall=NOW)
    me.confirm(write, lease("me", renewTime=write.renew_time), now=6)
    given_back = me.released()
    assert given_back
    assert given_back["spec"] == {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": write.renew_time}
    me.observe(lease("other"), now=7)
    assert me.released() is None


RATES = st.floats(1 / 1.2, 1.2)
LEASE, RENEW = 15.0, 10.0  # 1.2 * 1.2 < 15 / 10: clocks may differ by that much


@dataclass
class Flight:
    """A write on its way: it may arrive later, twice or never, and so may the answer."""

    write: LeaseWrite | None
    request: requests.Request
    answer: requests.Response | None = None


@dataclass
class Player:
    """A candidate with a clock of its own."""

    candidate: Candidate
    rate: float
    offset: float
    flights: list[Flight] = field(default_factory=list)

    def clock(self, time: float) -> float:
        return self.offset + self.rate * time


class Election(RuleBasedStateMachine):
    """Three candidates, two with the same name, at the mercy of the network and of clocks that run unevenly."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.server = LeaseServer()
        self.players: list[Player] = []

    @initialize(rates=st.tuples(RATES, RATES, RATES), offsets=st.tuples(*[st.floats(0, 1e6)] * 3))
    def start(self, rates: tuple[float, ...], offsets: tuple[float, ...]) -> None:
        self.players = [
            Player(candidate(identity, lease_seconds=LEASE, renew_seconds=RENEW), rate, offset)
            for identity, rate, offset in zip(["a", "b", "b"], rates, offsets, strict=True)
        ]

    who = st.integers(0, 2)

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 8.0, 11.0, 13.0, 18.0]))
    def time_passes(self, seconds: float) -> None:
        self.time += seconds

    @rule(who=who, fate=st.sampled_from(["good", "good", "request is late", "answer is late"]), look=st.booleans())
    def tries(self, who: int, fate: str, look: bool) -> None:
        """What a candidate does in every round. A leader renews without looking first."""
        player = self.players[who]
        now = player.clock(self.time)
        if look:
            player.candidate.observe(self.server.lease, now)
        if isinstance(player.candidate.decide(now), Wait):
            return
        # Processes of the same name are told apart by renewTime: they do not write in the same microsecond.
        write = player.candidate.next_write(now, NOW + timedelta(hours=who, seconds=self.time))
        build = requests.create_request if write.creates else requests.replace_request
        flight = Flight(write, build(LEASES, write.lease, namespace="n"))
        player.flights.append(flight)
        if fate != "request is late":
            flight.answer = self.server.handle(flight.request)
        if fate == "good":
            self._deliver(player, flight)

    @rule(who=who, data=st.data())
    def a_late_request_arrives(self, who: int, data: st.DataObject) -> None:
        if waiting := [flight for flight in self.players[who].flights if flight.answer is None]:
            flight = data.draw(st.sampled_from(waiting))
            flight.answer = self.server.handle(flight.request)

    @rule(who=who, data=st.data())
    def a_late_answer_arrives(self, who: int, data: st.DataObject) -> None:
        player = self.players[who]
        if answered := [flight for flight in player.flights if flight.answer]:
            self._deliver(player, data.draw(st.sampled_from(answered)))

    def _deliver(self, player: Player, flight: Flight) -> None:
        player.flights.remove(flight)
        assert flight.answer
        if responses.is_success(flight.answer.status) and flight.write:
            player.candidate.confirm(flight.write, responses.read_object(flight.answer), player.clock(self.time))

    @rule(who=who)
    def gives_back(self, who: int) -> None:
        player = self.players[who]
        player.candidate.stop_leading()
        player.candidate.observe(self.server.lease, player.clock(self.time))
        if released := player.candidate.released():
            player.flights.append(Flight(None, requests.replace_request(LEASES, released, namespace="n")))
        player.candidate.forget_writes()
        for flight in player.flights:
            flight.write = None  # the response is not awaited any more, but the request may still arrive

    @invariant()
    def at_most_one_leads(self) -> None:
        leading = [player for player in self.players if player.candidate.is_leader(player.clock(self.time))]
        assert len(leading) <= 1


TestElection = Election.TestCase
