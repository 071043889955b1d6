"""Leader election in fake time, over a network that fails; and once on the real API server."""

import asyncio
import logging
import re
from typing import Any

import pytest

from tests.support.background import in_background
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.servers.lease_server import LeaseServer, Network
from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.requests import Transport
from trainwright.kube.controller.leader_election import LeaderElector, process_identity
from trainwright.objects.resources import LEASES

fake_time = pytest.mark.looptime


def now() -> float:
    return asyncio.get_running_loop().time()


def election(client: Transport, identity: str, *, said: list[tuple[bool, str]] | None = None) -> LeaderElector:
    return LeaderElector(
        client,
        namespace="n",
        name="l",
        identity=identity,
        clock=now,
        on_change=None if said is None else lambda leading, leader: said.append((leading, leader)),
    )


async def leader(way: Network) -> LeaderElector:
    """One who leads already."""
    first = election(way, "a")
    await first.acquire()
    return first


@fake_time
async def test_first_candidate_leads_and_renews() -> None:
    server = LeaseServer()
    said: list[tuple[bool, str]] = []
    first = election(Network(server), "a", said=said)
    await first.acquire()
    assert (first.is_leader, first.leader) == (True, "a")
    async with in_background(first.renew()) as holding:
        await asyncio.sleep(100)
        assert not holding.done()
        assert first.is_leader
    assert server.writes == 50
    assert said == [(True, "a")]


@fake_time
async def test_standby_leads_within_the_lease_duration_after_a_kill() -> None:
    server = LeaseServer()
    first, second = election(Network(server), "a"), election(Network(server), "b")
    await first.acquire()
    async with in_background(second.acquire()) as waiting:
        async with in_background(first.renew()):
            await asyncio.sleep(30.5)
            assert (second.is_leader, second.leader) == (False, "a")
        killed = now()
        await waiting
        assert 10 < now() - killed <= 15
    assert (second.leader, server.holder) == ("b", "b")
    assert not first.is_leader


@fake_time
async def test_released_lease_is_acquired_at_once() -> None:
    server = LeaseServer()
    said: list[tuple[bool, str]] = []
    first, second = election(Network(server), "a", said=said), election(Network(server), "b")
    await first.acquire()
    async with in_background(second.acquire()) as waiting:
        await asyncio.sleep(5)
        released = now()
        await first.release()
        await waiting
        assert now() - released < 0.1
    assert said == [(True, "a"), (False, "")]
    assert server.lease
    assert server.lease["spec"]["leaseTransitions"] == 1


@fake_time
async def test_polling_suffices_without_the_permission_to_watch() -> None:
    server = LeaseServer()
    first, second = election(Network(server), "a"), election(Network(server, may_watch=False), "b")
    await first.acquire()
    async with in_background(second.acquire()) as waiting:
        await asyncio.sleep(5)
        released = now()
        await first.release()
        await waiting
        assert now() - released <= 2


@fake_time
async def test_one_of_many_candidates_acquires_a_free_lease() -> None:
    server = LeaseServer()
    candidates = [election(Network(server), name) for name in "abcdefgh"]
    trying = [asyncio.create_task(one.acquire()) for one in candidates]
    await asyncio.sleep(9)
    assert sum(one.is_leader for one in candidates) == 1
    assert {one.leader for one in candidates} == {server.holder}
    for task in trying:
        task.cancel()
    await asyncio.gather(*trying, return_exceptions=True)


@fake_time
async def test_leader_that_cannot_renew_stops_before_the_next_one_starts(caplog: pytest.LogCaptureFixture) -> None:
    server = LeaseServer()
    way = Network(server)
    first, second = election(way, "a"), election(Network(server), "b")
    await first.acquire()
    async with in_background(second.acquire()) as waiting:
        way.down = True
        cut = now()
        await first.renew()
        stopped = now()
        assert stopped - cut <= 10
        assert not first.is_leader
        await waiting
        assert now() - stopped >= 4
    complaints = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert complaints == [
        "cannot renew the lease n/l: cannot connect",
        "no longer the leader: the lease n/l could not be renewed for 10 s",
    ]


@fake_time
async def test_hanging_api_server_does_not_prolong_the_leadership() -> None:
    way = Network(LeaseServer())
    first = await leader(way)
    way.hangs = 3600
    began = now()
    await first.renew()
    assert now() - began <= 10


@fake_time
async def test_short_outage_does_not_end_the_leadership() -> None:
    way = Network(LeaseServer())
    first = await leader(way)
    async with in_background(first.renew()) as holding:
        for _ in range(5):
            way.down = True
            await asyncio.sleep(6)
            way.down = False
            await asyncio.sleep(3)
        assert not holding.done()


@fake_time
async def test_own_writes_with_lost_responses_are_recognised() -> None:
    way = Network(LeaseServer(), answers_lost=True)
    first = election(way, "a")
    async with in_background(first.acquire()) as waiting:
        await asyncio.sleep(5)
        way.answers_lost = False
        await asyncio.wait_for(waiting, 2.5)
    async with in_background(first.renew()) as holding:
        way.answers_lost = True
        await asyncio.sleep(5)
        way.answers_lost = False
        await asyncio.sleep(30)
        assert not holding.done()


@fake_time
async def test_a_long_outage_is_waited_out() -> None:
    way = Network(LeaseServer(), down=True)
    first = election(way, "a")
    async with in_background(first.acquire()) as waiting:
        await asyncio.sleep(600)
        assert 300 <= way.sent <= 700
        way.down = False
        await asyncio.wait_for(waiting, 2.5)


@fake_time
async def test_other_holder_ends_the_leadership_at_the_next_renewal(caplog: pytest.LogCaptureFixture) -> None:
    server = LeaseServer()
    first = await leader(Network(server))
    server.edit(holderIdentity="usurper")
    began = now()
    await first.renew()
    assert now() - began <= 2.1
    assert (first.is_leader, first.leader) == (False, "usurper")
    assert caplog.messages == ["no longer the leader: the lease n/l is held by 'usurper'"]


@fake_time
async def test_an_edit_that_leaves_the_holder_alone_does_no_harm() -> None:
    server = LeaseServer()
    first = await leader(Network(server))
    async with in_background(first.renew()) as holding:
        for _ in range(10):
            server.edit(strategy="x")
            await asyncio.sleep(3)
        assert not holding.done()


@fake_time
@pytest.mark.parametrize("may_watch", [True, False])
async def test_deleted_lease_is_created_again_by_its_holder_only(may_watch: bool) -> None:
    server = LeaseServer()
    first, second = election(Network(server), "a"), election(Network(server, may_watch=may_watch), "b")
    await first.acquire()
    async with (
        in_background(first.renew()) as holding,
        in_background(second.acquire()) as waiting,
    ):
        for _ in range(4):
            await asyncio.sleep(11.5)
            server.delete()
        await asyncio.sleep(5)
        assert not holding.done()
        assert not waiting.done()
    assert server.holder == "a"


@fake_time
async def test_two_with_one_name_do_not_both_lead() -> None:
    server = LeaseServer()
    first, second = election(Network(server), "same"), election(Network(server), "same")
    await first.acquire()
    async with (
        in_background(first.renew()),
        in_background(second.acquire()),
    ):
        await asyncio.sleep(60)
        assert (first.is_leader, second.is_leader) == (True, False)


@fake_time
async def test_release_does_not_change_the_lease_of_another_holder() -> None:
    server = LeaseServer()
    first, second = election(Network(server), "a"), election(Network(server), "b")
    await first.acquire()
    await second.release()
    async with in_background(second.acquire()):
        await asyncio.sleep(1)
    await second.release()
    server.edit(holderIdentity="c")
    await first.release()
    assert server.holder == "c"
    assert server.writes == 2


@fake_time
async def test_release_that_fails_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    way = Network(LeaseServer())
    first = await leader(way)
    way.hangs = 3600
    began = now()
    await first.release()
    assert now() - began <= 2
    assert not first.is_leader
    assert "cannot release the lease n/l: no response in time" in caplog.text


def test_an_empty_identity_is_refused() -> None:
    with pytest.raises(ValueError, match="identity must not be empty"):
        LeaderElector(Network(LeaseServer()), namespace="n", name="l", identity="")


def test_every_process_has_another_identity() -> None:
    assert process_identity() != process_identity()
    assert re.fullmatch(r".+_[0-9a-f-]{36}", process_identity())


@pytest.mark.apiserver
async def test_two_on_the_real_api_server(control_plane: ControlPlane, real_namespace: str) -> None:
    async with Client(control_plane.config) as client:
        lease: dict[str, Any] = {"namespace": real_namespace, "name": "operator"}
        first = LeaderElector(client, **lease, identity="a", lease_seconds=3600, renew_seconds=1800, retry_seconds=1)
        second = LeaderElector(client, **lease, identity="b", lease_seconds=2, renew_seconds=1.5, retry_seconds=0.3)
        await first.acquire()
        async with (
            in_background(first.renew()) as holding,
            in_background(second.acquire()) as waiting,
        ):
            began = await client.get(LEASES, "operator", namespace=real_namespace)
            await eventually(
                lambda: client.get(LEASES, "operator", namespace=real_namespace),
                lambda lease: lease["spec"]["renewTime"] > began["spec"]["renewTime"],
            )
            assert not waiting.done()
            assert began["spec"]["holderIdentity"] == "a"
            assert began["spec"]["leaseTransitions"] == 0
            holding.cancel()
            await first.release()
            await waiting  # the lease of an hour was released
        async with in_background(first.acquire()) as waiting:
            # The second one is gone without a word: nobody renews.
            await waiting
        ended = await client.get(LEASES, "operator", namespace=real_namespace)
        assert ended["spec"]["holderIdentity"] == "a"
        assert ended["spec"]["leaseTransitions"] == 2
        assert not second.is_leader
