"""The API server, or what it stands on, is gone or hangs while jobs run: the operator waits and goes on by itself."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.chaos.fleet import Fleet, played_jobs
from tests.support.chaos.operator_process import (
    WHOLE,
    OperatorProcess,
    all_succeeded,
    assert_counted,
    assert_events_are_true,
    assert_no_error_of_our_own,
    assert_nothing_lost_or_doubled,
)
from tests.support.chaos.podlives import PodLives, judging
from tests.support.cluster.controlplane import ControlPlane
from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client

JOBS = 10
SECONDS = 130 if WHOLE else 4
"""How long the trouble lasts: minutes, or in the sample just longer than the client tries again by itself."""
RECOVERY_SECONDS = 90
"""Within which all is as it should be, however long the trouble has lasted."""


@contextmanager
def server_gone(plane: ControlPlane) -> Iterator[None]:
    plane.apiserver.stop(kill=True)
    yield
    plane.apiserver.restart()


@contextmanager
def server_hangs(plane: ControlPlane) -> Iterator[None]:
    plane.apiserver.pause()
    yield
    plane.apiserver.resume()


@contextmanager
def storage_gone(plane: ControlPlane) -> Iterator[None]:
    """The server answers, with errors."""
    plane.etcd.stop(kill=True)
    yield
    plane.etcd.restart()


TROUBLES = (server_gone, server_hangs, storage_gone)


@pytest.mark.apiserver
@pytest.mark.timeout(60 + len(TROUBLES) * (SECONDS + RECOVERY_SECONDS))
async def test_outages_are_waited_out_by_the_same_process(
    client: Client, control_plane: ControlPlane, real_namespace: str, tmp_path: Path
) -> None:
    fleet = Fleet(client, real_namespace)
    async with fleet.running(), judging(client, real_namespace, then=fleet.see) as lives:
        with OperatorProcess(control_plane.kubeconfig, real_namespace, log=tmp_path / "operator.log") as operator:
            for number, trouble in enumerate(TROUBLES):
                steps = range(2 * number, 2 * number + 2)
                begun = lives.writes
                await fleet.submit(played_jobs(number, JOBS, steps=steps))
                await _at_work(lives, begun)
                # Some pods end just now, others when nobody can be told.
                await fleet.advance(steps[0])
                with trouble(control_plane):
                    await asyncio.sleep(SECONDS)
                await fleet.advance(steps[-1])
                found = await all_succeeded(client, real_namespace, operator, seconds=RECOVERY_SECONDS)
            assert_no_error_of_our_own(operator.log)
            assert_nothing_lost_or_doubled(fleet.jobs, found, lives)
            await assert_events_are_true(client, real_namespace, fleet.jobs)
            await assert_counted(operator, fleet.jobs)


async def _at_work(lives: PodLives, begun: int) -> None:
    async def writes() -> int:
        return lives.writes

    await eventually(writes, lambda count: count > begun)
