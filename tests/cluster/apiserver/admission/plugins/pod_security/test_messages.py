"""Upstream's cases on both servers: the same verdicts and the same messages."""

from contextlib import AsyncExitStack

import pytest

from tests.support.cluster.embedded_apiserver import running_embedded
from tests.support.cluster.raw_api import RawApi, raw_api
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.kubernetes.pod_security_cases import Case, pod_security_cases
from trainwright.cluster.apiserver.admission.plugins.pod_security.baseline_checks import BASELINE_CHECKS
from trainwright.cluster.apiserver.admission.plugins.pod_security.restricted_checks import RESTRICTED_CHECKS

CHANGES = sorted({first for check in (*BASELINE_CHECKS, *RESTRICTED_CHECKS) for first, _ in check.versions})
"""The versions in which a check was added or changed."""

pytestmark = pytest.mark.apiserver


async def secured_namespace(api: RawApi, level: str, minor: int) -> None:
    prefix = "pod-security.kubernetes.io/enforce"
    labels = {prefix: level, f"{prefix}-version": f"v1.{minor}"}
    api.namespace = f"{level}-{minor}"
    await api.post("/api/v1/namespaces", {"metadata": {"name": api.namespace, "labels": labels}})
    await api.post(api.path("serviceaccounts"), {"metadata": {"name": "default"}})


async def outcome(api: RawApi, case: Case) -> tuple[int, str]:
    reply = await api.post(api.path("pods") + "?dryRun=All", case.pod)
    return reply.code, "" if reply.code == 201 else reply.message


@pytest.mark.parametrize("level", ["baseline", "restricted"])
@pytest.mark.parametrize(
    "minor",
    [
        pytest.param(minor, marks=() if minor in {CHANGES[0], CHANGES[-1]} else pytest.mark.thorough)
        for minor in CHANGES
    ],
)
async def test_both_servers_give_the_same_answers(control_plane: ControlPlane, level: str, minor: int) -> None:
    cases = [case for case in pod_security_cases() if (case.level, case.minor) == (level, minor)]
    different = []
    async with AsyncExitStack() as stack:
        embedded = await stack.enter_async_context(running_embedded(admits_accounts=True))
        ours = await stack.enter_async_context(raw_api(embedded.config, ""))
        real = await stack.enter_async_context(raw_api(control_plane.config, ""))
        for api in (ours, real):
            await secured_namespace(api, level, minor)
        for case in cases:
            expected, found = await outcome(real, case), await outcome(ours, case)
            if found != expected:
                different.append((case.file, expected, found))
        await real.delete(f"/api/v1/namespaces/{real.namespace}")

    assert different == []
    assert len(cases) > 30
