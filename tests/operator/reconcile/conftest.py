"""The harness of the tests that apply plans."""

from collections.abc import AsyncIterator

import pytest

from tests.support.harness.applier_harness import ApplierHarness, CountingClient
from tests.support.kubernetes.controlplane import ControlPlane
from trainwright.api.kinds import PYTORCH


@pytest.fixture
async def harness(job_plane: ControlPlane, real_namespace: str) -> AsyncIterator[ApplierHarness]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": "example.com/train:1"}]}}
    async with CountingClient(job_plane.config) as client:
        job = await client.create(
            PYTORCH.resource,
            {
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "metadata": {"name": "job", "namespace": real_namespace},
                "spec": {"pytorchReplicaSpecs": {"Worker": {"replicas": 1, "template": template}}},
            },
        )
        harness = ApplierHarness(client, job)
        yield harness
        await harness.recorder.close()
