"""The operator leaves objects of other owners alone: a job runs from creation to deletion beside objects with its names
or labels, and none of them is deleted, patched or adopted."""

import pytest

from tests.support.harness.cluster_harness import RealClusterHarness
from tests.support.harness.job_harness import Event, JobHarness
from tests.support.objects import upstream
from tests.support.objects.jobs import JobBuilder, template
from tests.support.waiting import eventually
from trainwright.api.kinds import PYTORCH
from trainwright.objects import Object
from trainwright.objects.resources import AUTOSCALERS, CONFIG_MAPS, PODS, SERVICES, Resource

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(90)]

METRIC = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


async def test_foreign_objects_with_the_names_or_labels_of_a_job_are_not_changed(harness: RealClusterHarness) -> None:
    foreign = await create_foreign_objects(harness)
    before = [await stable_content(harness, *one) for one in foreign]
    elastic = {"minReplicas": 1, "maxReplicas": 3, "metrics": [METRIC]}
    builder = JobBuilder("job").master().workers(4).spec(elasticPolicy=elastic)
    await harness.submit(builder.run_policy(cleanPodPolicy="All"))

    # Two of the four workers have names that are taken: one as pod, one as Service.
    ours = ["job-master-0", "job-worker-0", "job-worker-3"]
    await wait_for_owned(harness, PODS, [*ours, "job-worker-2"])
    await wait_for_owned(harness, SERVICES, [*ours, "job-worker-1"])
    for kind, name in (("HorizontalPodAutoscaler", "job"), ("Pod", "job-worker-1"), ("Service", "job-worker-2")):
        await wait_for_warning(harness, kind, name)

    await harness.suspend("job")
    await wait_for_owned(harness, PODS, [])
    await harness.suspend("job", False)
    await wait_for_owned(harness, PODS, [*ours, "job-worker-2"])
    scale = {"spec": {"replicas": 1}}
    await harness.client.patch(PYTORCH.resource, "job", scale, namespace=harness.namespace, subresource="scale")
    await wait_for_owned(harness, PODS, ["job-master-0", "job-worker-0"])
    await harness.wait_until_running("job")
    await harness.end("job-master-0", exit_code=0)
    await harness.wait_for_conditions(
        "job",
        upstream.created("job"),
        upstream.resumed("job"),
        upstream.running("job", "False"),
        upstream.succeeded("job"),
    )
    await wait_for_owned(harness, PODS, [])
    await wait_for_owned(harness, SERVICES, [])
    await harness.client.delete(PYTORCH.resource, "job", namespace=harness.namespace)
    await harness.wait_until_deleted("job")
    await harness.settle()

    assert [await stable_content(harness, *one) for one in foreign] == before


async def create_foreign_objects(harness: JobHarness) -> list[tuple[Resource, str]]:
    """Objects with the names or labels of the job that it does not own."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
    owner = await harness.client.create(CONFIG_MAPS, config_map, namespace=harness.namespace)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned = {"ownerReferences": [{**reference, "controller": True}]}
    labels = {
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": "job",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "1",
    }
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    autoscaler = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2}
    headless = {"clusterIP": "None", "ports": [{"port": 1}]}
    foreign: list[tuple[Resource, str, Object, Object]] = [
        (PODS, "job-worker-1", {}, template()["spec"]),
        (PODS, "labelled", {"labels": labels}, template()["spec"]),
        (PODS, "job-worker-9", {"labels": {**labels, "training.kubeflow.org/replica-index": "9"}}, template()["spec"]),
        (PODS, "labelled-and-owned", {"labels": labels, **owned}, template()["spec"]),
        (SERVICES, "job-worker-2", {"labels": labels, **owned}, headless),
        (SERVICES, "labelled", {"labels": labels}, headless),
        (AUTOSCALERS, "job", {}, autoscaler),
        (AUTOSCALERS, "another", {"labels": labels}, autoscaler),
    ]
    for resource, name, metadata, spec in foreign:
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        named = {"name": name, "namespace": harness.namespace, **metadata}
        await harness.client.create(resource, {**head, "metadata": named, "spec": spec})
    return [(resource, name) for resource, name, _, _ in foreign]


async def stable_content(harness: JobHarness, resource: Resource, name: str) -> Object:
    """The fields that only the operator could change; the kubelet binds and starts pods."""
    seen = await harness.client.get(resource, name, namespace=harness.namespace)
    volatile = {"managedFields", "resourceVersion", "generation"} if resource is PODS else set()
    metadata = {key: value for key, value in seen["metadata"].items() if key not in volatile}
    spec = {key: value for key, value in seen["spec"].items() if key != "nodeName"}
    return {"kind": resource.kind, "metadata": metadata, "spec": spec}


async def wait_for_warning(harness: JobHarness, kind: str, name: str) -> None:
    """Waits until the job has a Warning event that names the object."""

    def has_warning(events: set[Event]) -> bool:
        return any(
            type_ == "Warning" and kind.lower() in f"{reason} {text}".lower() and f'"{name}"' in text
            for type_, reason, text in events
        )

    await eventually(lambda: harness.events("job"), has_warning)


async def wait_for_owned(harness: JobHarness, resource: Resource, names: list[str]) -> None:
    """Waits until the job owns exactly these objects."""

    async def owned() -> set[str]:
        found = (await harness.client.list(resource, namespace=harness.namespace)).items
        return {
            one["metadata"]["name"]
            for one in found
            if any(owner["name"] == "job" for owner in one["metadata"].get("ownerReferences", ()))
        }

    await eventually(owned, lambda seen: seen == set(names))
