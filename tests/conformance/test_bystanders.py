"""The operator leaves objects of other owners alone: a job runs from creation to deletion beside objects with its names
or labels, and none of them is deleted, patched or adopted."""

import pytest

from tests.support.harness.cluster_harness import RealClusterHarness
from tests.support.harness.job_harness import Event, JobHarness
from tests.support.objects.jobs import pair, pair_pods, template
from tests.support.waiting import eventually
from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.api.kinds.mpi import MPI
from trainwright.objects import Object
from trainwright.objects.resources import AUTOSCALERS, CONFIG_MAPS, PODS, SERVICES, Resource

pytestmark = pytest.mark.apiserver

METRIC = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


@pytest.mark.thorough(*KINDS, sample=2)
@pytest.mark.parametrize("name", KINDS)
async def test_foreign_objects_with_the_names_or_labels_of_a_job_are_not_changed(
    harness: RealClusterHarness, name: str
) -> None:
    kind = KINDS[name]
    harness = harness.of(kind)
    foreign = await create_foreign_objects(harness)
    before = [await stable_content(harness, *one) for one in foreign]
    first, _ = pair_pods("job", kind)
    builder = pair("job", kind).workers(4)
    if kind is PYTORCH:
        builder.spec(elasticPolicy={"minReplicas": 1, "maxReplicas": 3, "metrics": [METRIC]})
        foreign_autoscaler = [("HorizontalPodAutoscaler", "job")]
    else:
        foreign_autoscaler = []
    await harness.submit(builder.run_policy(cleanPodPolicy="All"))

    # Two of the four workers have names that are taken: one as pod, one as Service. A launcher waits for all workers:
    # it would start processes in the other owner's pod.
    ours = ["job-worker-0", "job-worker-3"] if kind is MPI else [first, "job-worker-0", "job-worker-3"]
    await wait_for_owned(harness, PODS, [*ours, "job-worker-2"])
    has_services = kind.roles[0].has_service
    await wait_for_owned(harness, SERVICES, [*ours, "job-worker-1"] if has_services else [])
    foreign_service = [("Service", "job-worker-2")] if has_services else []
    for taken, name_of in (*foreign_autoscaler, ("Pod", "job-worker-1"), *foreign_service):
        await wait_for_warning(harness, taken, name_of)

    await harness.suspend("job")
    await wait_for_owned(harness, PODS, [])
    await harness.suspend("job", False)
    await wait_for_owned(harness, PODS, [*ours, "job-worker-2"])
    await harness.change("job", **{kind.replicas_field: {"Worker": {"replicas": 1}}})
    await wait_for_owned(harness, PODS, [first, "job-worker-0"])
    await harness.wait_until_running("job")
    await harness.end(first, exit_code=0)
    await harness.wait_for_end("job", "Succeeded")
    await wait_for_owned(harness, PODS, [])
    await wait_for_owned(harness, SERVICES, [])
    await harness.client.delete(kind.resource, "job", namespace=harness.namespace)
    await harness.wait_until_deleted("job")
    await harness.settle()

    assert [await stable_content(harness, *one) for one in foreign] == before


TWO_KINDS = [("PyTorchJob", "TFJob"), ("PaddleJob", "JAXJob")]


@pytest.mark.parametrize(("one", "other"), TWO_KINDS, ids=[f"{one} and {other}" for one, other in TWO_KINDS])
@pytest.mark.thorough("PaddleJob and JAXJob")
async def test_jobs_of_two_kinds_with_one_name_do_each_other_no_harm(
    harness: RealClusterHarness, one: str, other: str
) -> None:
    """The second one waits for the names that the first one has, says so, and runs when they are free."""
    kind, blocked = KINDS[one], KINDS[other]
    await harness.of(kind).submit(pair("job", kind))
    first = await harness.of(kind).wait_until_running("job")
    names = set(pair_pods("job", kind))
    taken = names & set(pair_pods("job", blocked))
    assert taken
    before = await owned_uids(harness, one, names)

    await harness.of(blocked).submit(pair("job", blocked))
    for name in taken:
        for of in ("Pod", "Service"):
            text = (
                f'Resource "{name}" of Kind "{of}" already exists and is not managed by {other} job but by {one} job: '
                "delete it, or give the job another name"
            )
            await harness.of(blocked).wait_for_events("job", ("Warning", "ErrResourceExists", text))
    await harness.settle()

    assert await owned_uids(harness, one, names) == before
    assert (await harness.of(kind).job("job"))["status"] == first["status"]
    warnings = {event for event in await harness.of(kind).events("job") if event[0] == "Warning"}
    assert warnings == set()

    await harness.client.delete(kind.resource, "job", namespace=harness.namespace)
    await harness.of(blocked).wait_until_running("job")
    await wait_for_owned(harness.of(blocked), PODS, [*pair_pods("job", blocked)])


async def owned_uids(harness: JobHarness, kind: str, names: set[str]) -> dict[str, str]:
    """By name, the UIDs of these pods and Services, all of which a job of the kind owns."""
    uids = {}
    for resource in (PODS, SERVICES):
        for name in names:
            child = await harness.client.get(resource, name, namespace=harness.namespace)
            assert [owner["kind"] for owner in child["metadata"]["ownerReferences"]] == [kind]
            uids[f"{resource.plural}/{name}"] = child["metadata"]["uid"]
    return uids


async def create_foreign_objects(harness: JobHarness) -> list[tuple[Resource, str]]:
    """Objects with the names or labels of the job that it does not own."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
    owner = await harness.client.create(CONFIG_MAPS, config_map, namespace=harness.namespace)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned = {"ownerReferences": [{**reference, "controller": True}]}
    labels = {
        "training.kubeflow.org/operator-name": f"{harness.kind.name.lower()}-controller",
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
