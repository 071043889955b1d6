"""A fictitious framework on the real API server: with its row and its class alone, its jobs run to their end."""

import pytest

from tests.support.cluster.controlplane import ControlPlane
from tests.support.cluster.fake_kubelet import running_kubelet
from tests.support.harness.job_harness import submit
from tests.support.harness.running_operator import running_operator
from tests.support.objects.jobs import JobBuilder
from tests.support.objects.orchestra import ORCHESTRA, Orchestra
from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS, PODS, SERVICES
from trainwright.operator import install_crds

pytestmark = pytest.mark.apiserver

KINDS = {ORCHESTRA.name: ORCHESTRA}
FRAMEWORKS = {ORCHESTRA.framework: Orchestra()}


async def test_a_job_of_a_new_framework_runs_to_its_end(control_plane: ControlPlane, real_namespace: str) -> None:
    async with Client(control_plane.config) as client:
        await install_crds(client, KINDS.values())

        async def job() -> Object:
            return await client.get(ORCHESTRA.resource, "ninth", namespace=real_namespace)

        async with (
            running_kubelet(client, real_namespace) as kubelet,
            running_operator(client, kinds=KINDS, frameworks=FRAMEWORKS, namespace=real_namespace),
        ):
            builder = JobBuilder("ninth", kind=ORCHESTRA, namespace=real_namespace).run_policy(cleanPodPolicy="All")
            await submit(client, builder.replica("Conductor").replica("Violin", 2))
            await eventually(job, lambda seen: state(seen) == "Running")
            violin = await client.get(PODS, "ninth-violin-1", namespace=real_namespace)
            assert violin["spec"]["containers"][0]["env"] == [
                {"name": "BATON", "value": "ninth-conductor-0:4711"},
                {"name": "SEAT", "value": "1"},
            ]
            service = await client.get(SERVICES, "ninth-conductor-0", namespace=real_namespace)
            assert [(port["name"], port["port"]) for port in service["spec"]["ports"]] == [("baton", 4711)]

            await kubelet.finish("ninth-conductor-0")
            finished = await eventually(job, lambda seen: state(seen) == "Succeeded")
            assert finished["status"]["conditions"][-1]["message"] == "OrchestraJob ninth is successfully completed."

            async def pods() -> list[Object]:
                return (await client.list(PODS, namespace=real_namespace)).items

            await eventually(pods, lambda left: left == [])
        events = (await client.list(EVENTS, namespace=real_namespace)).items
        assert ("orchestrajob-controller", "OrchestraJobSucceeded") in {
            (event["source"]["component"], event["reason"]) for event in events
        }


def state(job: Object) -> str | None:
    """The State that `kubectl get` shows."""
    conditions = job.get("status", {}).get("conditions", [])
    return conditions[-1]["type"] if conditions else None
