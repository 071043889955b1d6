"""A proxy between the operator's process and the real API server injects every kind of fault: nothing is lost, nothing
is done or counted twice, and the operator needs no restart."""

import asyncio
import itertools
import time
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
from tests.support.chaos.pod_invariants import checking_invariants
from tests.support.chaos.scripted_jobs import ScriptedKubelet, scripted_jobs
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.servers.faults import FaultScript
from tests.support.thoroughness import THOROUGH
from trainwright.kube.client.async_client import Client

JOBS, FAULTS, STEPS = (50, 1000, 50) if THOROUGH else (25, 400, 20)
SEED = 4

_QUIET_SECONDS = 1.0


@pytest.mark.apiserver
@pytest.mark.timeout(900)
async def test_faults_between_operator_and_server_lose_nothing_and_repeat_nothing(
    client: Client, control_plane: ControlPlane, real_namespace: str, tmp_path: Path
) -> None:
    script = FaultScript(SEED, rate=0.5)
    proxy = FaultProxy(control_plane.config, script, limit=FAULTS, hang_seconds=70 if THOROUGH else 3)
    kubelet = ScriptedKubelet(client, real_namespace)
    async with (
        proxy.running(tmp_path / "proxy"),
        kubelet.running(),
        checking_invariants(client, real_namespace, then=kubelet.on_pod_event) as invariants,
    ):
        kubeconfig = proxy.write_kubeconfig(tmp_path / "kubeconfig")
        with OperatorProcess(kubeconfig, real_namespace, log=tmp_path / "operator.log") as operator:
            # More jobs follow until the operator has sent enough requests for all faults.
            for wave in itertools.count():
                steps = range(wave * STEPS, (wave + 1) * STEPS)
                await kubelet.submit(scripted_jobs(SEED + wave, JOBS, steps=steps))
                for step in steps:
                    await _wait_for_faults(proxy, step * FAULTS // STEPS)
                    await kubelet.advance(step)
                    operator.check()
                found = await all_succeeded(client, real_namespace, operator)
                if len(proxy.injected) >= FAULTS:
                    break
            assert_no_traceback(operator.log)
            assert_ran_exactly_once(kubelet.jobs, found, invariants)
            await assert_events_happened(client, real_namespace, kubelet.jobs)
            await assert_counters(operator, kubelet.jobs)
    assert len(proxy.injected) == FAULTS


async def _wait_for_faults(proxy: FaultProxy, due: int) -> None:
    """Returns when so many faults have been injected, so that they meet every phase of a job; or when the operator has
    sent no request for a while."""
    seen, since = -1, time.monotonic()
    while len(proxy.injected) < due and time.monotonic() - since < _QUIET_SECONDS:
        if len(proxy.injected) != seen:
            seen, since = len(proxy.injected), time.monotonic()
        await asyncio.sleep(0.01)
