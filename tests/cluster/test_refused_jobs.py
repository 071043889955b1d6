"""A job whose pods Pod Security admission refuses, on the embedded cluster and on a real API server."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.harness.cluster_harness import ClusterHarness, embedded_cluster_harness, real_cluster_harness
from tests.support.objects.jobs import JobBuilder
from tests.support.waiting import eventually
from trainwright.kube.client.errors import Forbidden
from trainwright.objects.resources import NAMESPACES, PODS


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.apiserver)])
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ClusterHarness]:
    if request.param == "embedded":
        chosen = embedded_cluster_harness(tmp_path)
    else:
        config = request.getfixturevalue("job_plane").config
        chosen = real_cluster_harness(config, request.getfixturevalue("real_namespace"), tmp_path)
    async with chosen as harness:
        yield harness


async def enforce(harness: ClusterHarness, level: str | None) -> None:
    labels = {"pod-security.kubernetes.io/enforce": level}
    await harness.client.patch(NAMESPACES, harness.namespace, {"metadata": {"labels": labels}})


async def test_the_event_of_the_job_names_the_violation_and_the_job_goes_on_when_it_may(
    harness: ClusterHarness,
) -> None:
    pod = harness.template()  # with a hostPath
    await enforce(harness, "baseline")

    async def enforced() -> bool:
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, **pod}
        try:
            await harness.client.create(PODS, body, namespace=harness.namespace)
        except Forbidden:
            return True
        await harness.client.delete(PODS, "probe", namespace=harness.namespace, grace_period_seconds=0)
        return False

    await eventually(enforced, bool)  # the real admission sees the label with a delay
    await harness.submit(JobBuilder().master(pod=pod))
    violation = 'violates PodSecurity "baseline:latest": hostPath volumes (volume "harness")'
    message = f'Error creating: pods "digits-master-0" is forbidden: {violation}'
    await harness.wait_for_events("digits", ("Warning", "FailedCreatePod", message))
    assert await harness.pods("digits") == {}

    await enforce(harness, None)
    await eventually(lambda: harness.pods("digits"), lambda pods: list(pods) == ["digits-master-0"])
