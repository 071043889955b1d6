"""Children without an owner are adopted, relabelled ones are released."""

import pytest

from tests.support.engine.planning import STARTED, created, decide, deleted, standing_events
from tests.support.objects.jobs import JOB_UID, JobBuilder, PodBuilder, service, view_service
from trainwright.engine import Patch, Plan

JOB = "training.kubeflow.org/job-name"
CONTROLLER = "training.kubeflow.org/operator-name"


def job(workers: int = 1) -> JobBuilder:
    return JobBuilder().workers(workers).status(STARTED)


def owners(patch: Patch) -> list[str]:
    return [owner["uid"] for owner in patch.body["metadata"]["ownerReferences"]]


def owners_by_name(made: Plan) -> dict[tuple[str, str], list[str]]:
    return {(patch.resource.kind, patch.name): owners(patch) for patch in made.patches}


def test_orphan_with_the_name_and_labels_of_a_rank_is_adopted() -> None:
    orphan = service("Worker", 0)
    orphan["metadata"]["ownerReferences"] = []
    made = decide(job(), PodBuilder("Worker", 0).owner(None).running(), services=[view_service(orphan)])
    assert owners_by_name(made) == {
        ("Pod", "digits-worker-0"): [JOB_UID],
        ("Service", "digits-worker-0"): [JOB_UID],
    }
    (pod, _) = made.patches
    assert pod.uid == "digits-worker-0-uid"
    assert pod.body["metadata"]["resourceVersion"] == "1"
    assert (created(made), created(made, "Service"), standing_events(made)) == ([], [], [])


def test_other_ranks_get_children_while_an_orphan_is_adopted() -> None:
    orphan = service("Worker", 0)
    orphan["metadata"]["ownerReferences"] = []
    made = decide(job(2), PodBuilder("Worker", 0).owner(None).running(), services=[view_service(orphan)])
    assert created(made) == created(made, "Service") == ["digits-worker-1"]


def test_adoption_keeps_owners_that_are_not_controllers() -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other-uid"}
    made = decide(job(), PodBuilder("Worker", 0).metadata(ownerReferences=[other]))
    (patch,) = made.patches
    assert patch.body["metadata"]["ownerReferences"][0] == other
    assert owners(patch) == ["other-uid", JOB_UID]


@pytest.mark.parametrize(
    "other",
    [
        PodBuilder("Worker", 0).owner(None).label(JOB, "another"),
        PodBuilder("Worker", 0).owner(None).label("training.kubeflow.org/replica-index", "1"),
        PodBuilder("Worker", 5).owner(None),
        PodBuilder("Worker", 0).owner(None).terminating(),
        PodBuilder("Worker", 0).owner("other-uid"),
    ],
)
def test_object_that_differs_from_a_rank_is_not_adopted(other: PodBuilder) -> None:
    made = decide(job(), other)
    assert made.patches == ()
    assert deleted(made) == []


@pytest.mark.parametrize("key", [JOB, CONTROLLER])
def test_relabelled_child_is_released(key: str) -> None:
    relabelled = service("Worker", 0)
    relabelled["metadata"]["labels"][key] = "another"
    made = decide(job(), PodBuilder("Worker", 0).running().label(key, "another"), services=[view_service(relabelled)])
    assert owners_by_name(made) == {("Pod", "digits-worker-0"): [], ("Service", "digits-worker-0"): []}
    assert deleted(made) == deleted(made, "services") == []
    assert created(made) == []


def test_finished_or_suspended_job_adopts_nothing_but_releases() -> None:
    done = {**STARTED, "conditions": [*STARTED["conditions"], {"type": "Succeeded", "status": "True"}]}
    for builder in (JobBuilder().workers(1).status(done), job().suspend()):
        assert decide(builder, PodBuilder("Worker", 0).owner(None)).patches == ()
        (patch,) = decide(builder, PodBuilder("Worker", 0).label(JOB, "another")).patches
        assert owners(patch) == []
        assert deleted(decide(builder, PodBuilder("Worker", 0).label(JOB, "another"))) == []


def test_terminating_job_adopts_nothing() -> None:
    terminating = job().metadata(deletionTimestamp="2026-11-15T04:00:00Z")
    assert decide(terminating, PodBuilder("Worker", 0).owner(None)).empty
