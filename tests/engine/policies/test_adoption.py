"""Children without an owner are taken in, relabelled ones are let go."""

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


def test_an_orphan_with_the_name_and_the_labels_of_a_rank_is_adopted() -> None:
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


def test_ranks_beside_an_orphan_get_their_children() -> None:
    orphan = service("Worker", 0)
    orphan["metadata"]["ownerReferences"] = []
    made = decide(job(2), PodBuilder("Worker", 0).owner(None).running(), services=[view_service(orphan)])
    assert created(made) == created(made, "Service") == ["digits-worker-1"]


def test_owners_that_do_not_control_it_are_kept() -> None:
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
        PodBuilder("Worker", 0).owner("somebody-else"),
    ],
)
def test_what_is_not_ours_in_everything_is_left_alone(other: PodBuilder) -> None:
    made = decide(job(), other)
    assert made.patches == ()
    assert deleted(made) == []


@pytest.mark.parametrize("key", [JOB, CONTROLLER])
def test_a_child_that_was_given_to_somebody_else_by_its_labels_is_released(key: str) -> None:
    taken_out = service("Worker", 0)
    taken_out["metadata"]["labels"][key] = "another"
    made = decide(job(), PodBuilder("Worker", 0).running().label(key, "another"), services=[view_service(taken_out)])
    assert owners_by_name(made) == {("Pod", "digits-worker-0"): [], ("Service", "digits-worker-0"): []}
    assert deleted(made) == deleted(made, "services") == []
    assert created(made) == []


def test_a_finished_or_suspended_job_adopts_nothing_but_releases() -> None:
    done = {**STARTED, "conditions": [*STARTED["conditions"], {"type": "Succeeded", "status": "True"}]}
    for builder in (JobBuilder().workers(1).status(done), job().suspend()):
        assert decide(builder, PodBuilder("Worker", 0).owner(None)).patches == ()
        (patch,) = decide(builder, PodBuilder("Worker", 0).label(JOB, "another")).patches
        assert owners(patch) == []
        assert deleted(decide(builder, PodBuilder("Worker", 0).label(JOB, "another"))) == []


def test_a_job_that_goes_claims_nothing() -> None:
    going = job().metadata(deletionTimestamp="2026-11-15T04:00:00Z")
    assert decide(going, PodBuilder("Worker", 0).owner(None)).empty
