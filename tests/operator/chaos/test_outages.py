"""The API server or etcd stops or hangs while jobs run: the operator waits and continues without a restart."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.chaos.assertions import (
    all_succeeded,
    assert_counters,
    assert_events_happened,
    assert_no_traceback,
    assert_ran_exactly_once,
)
from tests.support.chaos.operator_process import OperatorProcess
from tests.support.chaos.pod_invariants import PodInvariants, checking_invariants
from tests.support.chaos.scripted_jobs import ScriptedKubelet, scripted_jobs
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.thoroughness import THOROUGH
from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client

JOBS = 10
SECONDS = 130 if THOROUGH else 4
"""Length of an outage: minutes, or in the sample just longer than the client's own retries."""
RECOVERY_SECONDS = 90
"""Time to recover, however long the outage was."""


@contextmanager
def apiserver_stopped(plane: ControlPlane) -> Iterator[None]:
    plane.apiserver.stop(kill=True)
    yield
    plane.apiserver.restart()


@contextmanager
def apiserver_hangs(plane: ControlPlane) -> Iterator[None]:
    plane.apiserver.pause()
    yield
    plane.apiserver.resume()


@contextmanager
def etcd_stopped(plane: ControlPlane) -> Iterator[None]:
    """The API server answers with errors."""
    plane.etcd.stop(kill=True)
    yield
    plane.etcd.restart()


OUTAGES = (*((apiserver_stopped,) if THOROUGH else ()), apiserver_hangs, etcd_stopped)
"""A server that is stopped is also in `test_operator`."""


@pytest.mark.apiserver
@pytest.mark.timeout(300 + len(OUTAGES) * (SECONDS + RECOVERY_SECONDS))
async def test_outages_are_waited_out_by_the_same_process(
    client: Client, control_plane: ControlPlane, real_namespace: str, tmp_path: Path
) -> None:
    kubelet = ScriptedKubelet(client, real_namespace)
    async with kubelet.running(), checking_invariants(client, real_namespace, then=kubelet.on_pod_event) as invariants:
        with OperatorProcess(control_plane.kubeconfig, real_namespace, log=tmp_path / "operator.log") as operator:
            for number, outage in enumerate(OUTAGES):
                steps = range(2 * number, 2 * number + 2)
                begun = invariants.writes
                await kubelet.submit(scripted_jobs(number, JOBS, steps=steps))
                await _at_work(invariants, begun)
                # Some pods end before the outage, others during it.
                await kubelet.advance(steps[0])
                with outage(control_plane):
                    await asyncio.sleep(SECONDS)
                await kubelet.advance(steps[-1])
                found = await all_succeeded(client, real_namespace, operator, seconds=RECOVERY_SECONDS)
            assert_no_traceback(operator.log)
            assert_ran_exactly_once(kubelet.jobs, found, invariants)
            await assert_events_happened(client, real_namespace, kubelet.jobs)
            await assert_counters(operator, kubelet.jobs)


async def _at_work(invariants: PodInvariants, begun: int) -> None:
    async def writes() -> int:
        return invariants.writes

    await eventually(writes, lambda count: count > begun)
