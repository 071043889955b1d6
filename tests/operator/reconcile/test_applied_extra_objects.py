"""Plans with extra objects are applied on a real API server: what exists already, and what pods wait for."""

from dataclasses import replace

import pytest

from tests.support.harness.applier_harness import ApplierHarness, creation
from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.engine import Plan, Replace
from trainwright.engine.framework import CONFIG_MAP, SERVICE_ACCOUNT, ExtraResource
from trainwright.engine.frameworks.pytorch import AUTOSCALER
from trainwright.objects import Object
from trainwright.objects.metadata import controller_reference
from trainwright.objects.resources import (
    CONFIG_MAPS,
    Resource,
)
from trainwright.operator.reconcile.caches import Caches
from trainwright.operator.reconcile.child_write_events import InvalidChild

pytestmark = pytest.mark.apiserver


def extra_object(harness: ApplierHarness, resource: Resource, name: str, **content: object) -> Object:
    labels = {"training.kubeflow.org/job-name": "job"}
    metadata: Object = {"name": name, "namespace": harness.namespace, "labels": labels}
    metadata["ownerReferences"] = [controller_reference(harness.job)]
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **content}


async def watching(harness: ApplierHarness, *extras: ExtraResource) -> None:
    harness.caches = Caches(KINDS, extras=extras)
    harness.applier = harness.applier_of(1)


@pytest.mark.parametrize("extra", [AUTOSCALER, CONFIG_MAP, SERVICE_ACCOUNT])
@pytest.mark.parametrize("labelled", [True, False])
async def test_existing_extra_object_of_the_job_is_cached_and_labelled(
    harness: ApplierHarness, extra: ExtraResource, labelled: bool
) -> None:
    await watching(harness, extra)
    target = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "job"}
    content = {"spec": {"scaleTargetRef": target, "maxReplicas": 2}} if extra is AUTOSCALER else {}
    wanted = extra_object(harness, extra.resource, "job", **content)
    present = extra_object(harness, extra.resource, "job", **content)
    if not labelled:
        del present["metadata"]["labels"]
    await harness.client.create(extra.resource, present)
    assert await harness.apply(creates=(wanted,)) == ()
    assert [one.metadata.name for one in harness.observed.extras] == ["job"]
    stored = await harness.client.get(extra.resource, "job", namespace=harness.namespace)
    assert bool(stored["metadata"].get("labels")) is (labelled or extra is not SERVICE_ACCOUNT)


async def test_extra_object_without_owner_is_never_changed(harness: ApplierHarness) -> None:
    await watching(harness, CONFIG_MAP)
    present = extra_object(harness, CONFIG_MAPS, "job-config", data={"mine": "1"})
    del present["metadata"]["ownerReferences"]
    await harness.client.create(CONFIG_MAPS, present)
    wanted = extra_object(harness, CONFIG_MAPS, "job-config", data={"ours": "1"})
    (failure,) = await harness.apply(creates=(wanted,))
    assert failure.startswith(
        'Resource "job-config" of Kind "ConfigMap" already exists and is not managed by PyTorchJob'
    )
    (kind, reason, _), *_ = await harness.events()
    assert (kind, reason) == ("Warning", "ErrResourceExists")
    kept = await harness.client.get(CONFIG_MAPS, "job-config", namespace=harness.namespace)
    assert kept["data"] == {"mine": "1"}


async def test_pods_wait_for_the_objects_that_they_need(harness: ApplierHarness) -> None:
    await watching(harness, CONFIG_MAP)
    broken = extra_object(harness, CONFIG_MAPS, "job-config", data={"not a key": "1"})
    first = replace(creation(broken), wave=0, job_field="spec.pytorchReplicaSpecs[Master]")
    plan = Plan(creates=(first, creation(harness.pod("job-worker-0"))))
    with pytest.raises(InvalidChild, match=r"spec.pytorchReplicaSpecs\[Master\]: ConfigMap \"job-config\" is invalid"):
        await harness.applier.apply(PYTORCH, harness.job, plan)
    assert await harness.pods() == []


async def test_name_conflict_of_an_object_that_pods_do_not_need_stops_no_create(harness: ApplierHarness) -> None:
    await watching(harness, CONFIG_MAP)
    foreign = extra_object(harness, CONFIG_MAPS, "job-config")
    del foreign["metadata"]["ownerReferences"]
    await harness.client.create(CONFIG_MAPS, foreign)
    wanted = replace(creation(extra_object(harness, CONFIG_MAPS, "job-config")), needed=False)
    failures = await harness.applier.apply(
        PYTORCH, harness.job, Plan(creates=(wanted, creation(harness.pod("job-worker-0"))))
    )
    assert len(failures) == 1
    assert await harness.pods() == ["job-worker-0"]


async def test_invalid_object_stops_creates_even_if_pods_do_not_need_it(harness: ApplierHarness) -> None:
    await watching(harness, CONFIG_MAP)
    broken = replace(creation(extra_object(harness, CONFIG_MAPS, "job-config", data={"not a key": "1"})), needed=False)
    plan = Plan(creates=(broken, creation(harness.pod("job-worker-0"))))
    with pytest.raises(InvalidChild):
        await harness.applier.apply(PYTORCH, harness.job, plan)
    assert await harness.pods() == []


async def test_update_that_changes_nothing_is_a_failure(harness: ApplierHarness) -> None:
    await watching(harness, CONFIG_MAP)
    stored = await harness.client.create(CONFIG_MAPS, extra_object(harness, CONFIG_MAPS, "job-config", data={"a": "1"}))
    (failure,) = await harness.apply(replaces=(Replace(CONFIG_MAPS, "job-config", stored),))
    assert failure == "ConfigMap job-config: the API server ignored the update"


async def test_update_replaces_an_object_only_in_the_observed_version(harness: ApplierHarness) -> None:
    await watching(harness, CONFIG_MAP)
    stored = await harness.client.create(CONFIG_MAPS, extra_object(harness, CONFIG_MAPS, "job-config", data={"a": "1"}))
    changed = Replace(CONFIG_MAPS, "job-config", {**stored, "data": {"a": "2"}})
    assert await harness.apply(replaces=(changed,)) == ()
    assert harness.observed.extras[0].content == {"data": {"a": "2"}}
    (failure,) = await harness.apply(replaces=(changed,))
    assert "the object has been modified" in failure
    assert await harness.events() == []
