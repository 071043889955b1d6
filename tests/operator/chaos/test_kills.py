"""The operator's process is killed many times while jobs run on the real API server: nothing is lost, nothing is done
or counted twice."""

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.support.chaos.assertions import (
    all_succeeded,
    assert_events_happened,
    assert_no_traceback,
    assert_ran_exactly_once,
    expected_counters,
)
from tests.support.chaos.operator_process import OperatorProcess
from tests.support.chaos.pod_invariants import PodInvariants, checking_invariants
from tests.support.chaos.scripted_jobs import ScriptedKubelet, scripted_jobs
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.thoroughness import THOROUGH
from trainwright.kube.client.async_client import Client

JOBS, KILLS = (50, 50) if THOROUGH else (25, 6)
SEED = 4


@pytest.mark.apiserver
@pytest.mark.timeout(900)
async def test_kills_of_the_operator_lose_nothing_and_repeat_nothing(
    client: Client, control_plane: ControlPlane, real_namespace: str, tmp_path: Path
) -> None:
    kubelet = ScriptedKubelet(client, real_namespace)
    dice = random.Random(SEED)
    counted: Counter[str] = Counter()
    async with kubelet.running(), checking_invariants(client, real_namespace, then=kubelet.on_pod_event) as invariants:
        await kubelet.submit(scripted_jobs(SEED, JOBS, steps=range(KILLS)))
        with OperatorProcess(control_plane.kubeconfig, real_namespace, log=tmp_path / "operator.log") as operator:
            for kill in range(1, KILLS + 1):
                await _wait_for_a_moment_to_kill(invariants, dice)
                counted += await operator.counters()
                await asyncio.sleep(dice.uniform(0, 0.05))
                operator.stop(kill=True)
                await kubelet.advance(kill)
                operator.restart()
            found = await all_succeeded(client, real_namespace, operator)
            assert_no_traceback(operator.log)
            assert_ran_exactly_once(kubelet.jobs, found, invariants)
            await assert_events_happened(client, real_namespace, kubelet.jobs)
            # Counts after the last scrape of a process were lost with it.
            counted += await operator.counters()
            assert counted <= expected_counters(kubelet.jobs)
            assert counted.total() > 0


async def _wait_for_a_moment_to_kill(invariants: PodInvariants, dice: random.Random) -> None:
    """Mostly a few writes after the operator's first one, sometimes while it starts."""
    if dice.random() < 0.15:
        await asyncio.sleep(dice.uniform(0, 1))
        return
    wanted, deadline = invariants.writes + dice.randint(1, 30), time.monotonic() + 3
    while invariants.writes < wanted and time.monotonic() < deadline:
        await asyncio.sleep(0.001)
