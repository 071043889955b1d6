"""Safe beside objects that it does not own: a job goes through its whole life among strangers that have its names or
its labels, and not one of them is deleted, patched or taken."""

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


async def test_strangers_with_the_names_or_labels_of_a_job_are_left_as_they_are(harness: RealClusterHarness) -> None:
    strangers = await make_strangers(harness)
    before = [await look(harness, *stranger) for stranger in strangers]
    elastic = {"minReplicas": 1, "maxReplicas": 3, "metrics": [METRIC]}
    builder = JobBuilder("job").master().workers(4).spec(elasticPolicy=elastic)
    await harness.submit(builder.run_policy(cleanPodPolicy="All"))

    # Of the four workers two have names that are taken, one as pod and one as service.
    ours = ["job-master-0", "job-worker-0", "job-worker-3"]
    await has_own(harness, PODS, [*ours, "job-worker-2"])
    await has_own(harness, SERVICES, [*ours, "job-worker-1"])
    for kind, name in (("HorizontalPodAutoscaler", "job"), ("Pod", "job-worker-1"), ("Service", "job-worker-2")):
        await is_told_of(harness, kind, name)

    await harness.suspend("job")
    await has_own(harness, PODS, [])
    await harness.suspend("job", False)
    await has_own(harness, PODS, [*ours, "job-worker-2"])
    scale = {"spec": {"replicas": 1}}
    await harness.client.patch(PYTORCH.resource, "job", scale, namespace=harness.namespace, subresource="scale")
    await has_own(harness, PODS, ["job-master-0", "job-worker-0"])
    await harness.wait_until_running("job")
    await harness.end("job-master-0", exit_code=0)
    await harness.wait_for_conditions(
        "job",
        upstream.created("job"),
        upstream.resumed("job"),
        upstream.running("job", "False"),
        upstream.succeeded("job"),
    )
    await has_own(harness, PODS, [])
    await has_own(harness, SERVICES, [])
    await harness.client.delete(PYTORCH.resource, "job", namespace=harness.namespace)
    await harness.wait_until_deleted("job")
    await harness.settle()

    assert [await look(harness, *stranger) for stranger in strangers] == before


async def make_strangers(harness: JobHarness) -> list[tuple[Resource, str]]:
    """All of them are somebody else's, in one way or another."""
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
    strangers: list[tuple[Resource, str, Object, Object]] = [
        (PODS, "job-worker-1", {}, template()["spec"]),
        (PODS, "labelled", {"labels": labels}, template()["spec"]),
        (PODS, "job-worker-9", {"labels": {**labels, "training.kubeflow.org/replica-index": "9"}}, template()["spec"]),
        (PODS, "labelled-and-owned", {"labels": labels, **owned}, template()["spec"]),
        (SERVICES, "job-worker-2", {"labels": labels, **owned}, headless),
        (SERVICES, "labelled", {"labels": labels}, headless),
        (AUTOSCALERS, "job", {}, autoscaler),
        (AUTOSCALERS, "another", {"labels": labels}, autoscaler),
    ]
    for resource, name, metadata, spec in strangers:
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        named = {"name": name, "namespace": harness.namespace, **metadata}
        await harness.client.create(resource, {**head, "metadata": named, "spec": spec})
    return [(resource, name) for resource, name, _, _ in strangers]


async def look(harness: JobHarness, resource: Resource, name: str) -> Object:
    """All of it that does not change by itself: pods are bound and started by the kubelet."""
    seen = await harness.client.get(resource, name, namespace=harness.namespace)
    lively = {"managedFields", "resourceVersion", "generation"} if resource is PODS else set()
    metadata = {key: value for key, value in seen["metadata"].items() if key not in lively}
    spec = {key: value for key, value in seen["spec"].items() if key != "nodeName"}
    return {"kind": resource.kind, "metadata": metadata, "spec": spec}


async def is_told_of(harness: JobHarness, kind: str, name: str) -> None:
    """Waits until the job has a warning that names the object in its way."""

    def warned(told: set[Event]) -> bool:
        return any(
            type_ == "Warning" and kind.lower() in f"{reason} {text}".lower() and f'"{name}"' in text
            for type_, reason, text in told
        )

    await eventually(lambda: harness.events("job"), warned)


async def has_own(harness: JobHarness, resource: Resource, names: list[str]) -> None:
    """Waits until these, and no others, are the job's."""

    async def owned() -> set[str]:
        found = (await harness.client.list(resource, namespace=harness.namespace)).items
        return {
            one["metadata"]["name"]
            for one in found
            if any(owner["name"] == "job" for owner in one["metadata"].get("ownerReferences", ()))
        }

    await eventually(owned, lambda seen: seen == set(names))
