"""The plans of a job from creation to success, and jobs that are left alone."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.engine.planning import STARTED, all_services, conditions, created, decide, events, states
from tests.support.objects.hostile import corrupted_specs
from tests.support.objects.jobs import JobBuilder, PodBuilder, at, pair, pair_pods
from tests.support.objects.junk import of_any_kind, statuses
from trainwright.api.errors import InvalidJob
from trainwright.api.job import read_job, salvage_job
from trainwright.api.kinds import KINDS, Kind
from trainwright.engine import EMBEDDED, Observed, Plan, Settings, Transition, plan
from trainwright.objects import Object
from trainwright.objects.kinds.gangs import GangScheduler

VOLCANO, PLUGINS = Settings(gang=GangScheduler("volcano")), Settings(gang=GangScheduler("scheduler-plugins"))
SELECTOR = (
    "training.kubeflow.org/job-name=digits,training.kubeflow.org/operator-name=pytorchjob-controller,"
    "training.kubeflow.org/replica-type="
)


def job(status: Object | None = None) -> JobBuilder:
    return JobBuilder().master().workers(2).status(status)


def pods(master: str, *workers: str) -> list[PodBuilder]:
    built = [PodBuilder("Master"), *(PodBuilder("Worker", index) for index in range(len(workers)))]
    return [
        getattr(pod, phase)() if phase != "pending" else pod
        for pod, phase in zip(built, (master, *workers), strict=True)
    ]


def test_first_plan_sets_created_and_creates_all_children() -> None:
    made = decide(job())
    assert made.status == {
        **STARTED,
        "replicaStatuses": {
            "Master": {"selector": f"{SELECTOR}master"},
            "Worker": {"selector": f"{SELECTOR}worker"},
        },
    }
    assert len(made.creates) == 6
    assert made.events == ()


def test_children_of_a_new_job_do_not_wait_for_its_status() -> None:
    assert decide(job()).status_follows
    assert decide(job(), now=at(59)).status_follows
    assert not decide(job(), now=at(60)).status_follows, "it is not new"
    assert not decide(job().metadata(creationTimestamp=None)).status_follows, "its age is unknown"
    assert not decide(job(STARTED)).status_follows, "it has a status"
    assert not decide(job().suspend()).status_follows, "no child is created"
    assert decide(job(), settings=EMBEDDED).status_follows
    assert not decide(job().spec(cleanPodPolicy="All")).status_follows, "events follow the status"


@pytest.mark.parametrize("settings", [Settings(), EMBEDDED], ids=["any cluster", "one machine"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_first_plan_of_a_new_job_creates_all_its_pods(kind: Kind, settings: Settings) -> None:
    made = decide(pair("new", kind), settings=settings)
    assert sorted(created(made)) == sorted(pair_pods("new", kind))
    assert made.status_follows


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(pods("failed", "pending"), id="a failure is counted before its pod is deleted"),
        pytest.param(pods("pending", "succeeded"), id="a completed rank is recorded before others are created"),
        pytest.param([PodBuilder("Worker", 0).succeeded(None)], id="even without exit code"),
        pytest.param([PodBuilder("Worker", 7)], id="children are deleted after the status write"),
        pytest.param([PodBuilder("Worker", 0).owner(None)], id="children are patched after the status write"),
    ],
)
def test_outcomes_of_children_without_a_status_are_recorded_first(found: list[PodBuilder]) -> None:
    made = decide(job(), *found)
    assert made.status is not None
    assert made.creates
    assert not made.status_follows


def test_only_the_numbers_of_pods_may_be_written_later() -> None:
    started = decide(job()).status
    assert not decide(job(started), *pods("pending", "pending", "pending"), services=all_services()).only_counts
    assert decide(job(started), *pods("pending", "running", "pending"), services=all_services()).only_counts
    running = decide(job(started), *pods("running", "running", "pending"), services=all_services())
    assert not running.only_counts, "a condition changes too"
    assert decide(job(running.status), *pods("running", "running", "running"), services=all_services()).only_counts
    completed = decide(job(running.status), *pods("running", "running", "succeeded"), services=all_services())
    assert not completed.only_counts, "the completed rank is recorded, with an event"


@pytest.mark.parametrize(
    "found",
    [
        pytest.param([], id="creates"),
        pytest.param([PodBuilder("Worker", 1), PodBuilder("Worker", 7)], id="deletes"),
        pytest.param([PodBuilder("Worker", 1).owner(None)], id="patches"),
    ],
)
def test_numbers_of_pods_are_written_with_changes_of_children(found: list[PodBuilder]) -> None:
    made = decide(job(decide(job()).status), *pods("pending", "running"), *found, services=all_services())
    assert made.status is not None
    assert made.changes_children
    assert not made.only_counts


def test_numbers_of_pods_are_written_before_the_job_is_deleted() -> None:
    finished = decide(job(STARTED), *pods("succeeded", "running", "running")).status
    assert finished is not None
    counted_by_another = {**finished, "replicaStatuses": {"Worker": {"active": 2}}}
    made = decide(job(counted_by_another).run_policy(ttlSecondsAfterFinished=0, cleanPodPolicy="None"))
    assert made.status is not None
    assert made.delete_job
    assert not made.only_counts


def test_each_transition_is_counted_by_the_plan_that_writes_it() -> None:
    assert decide(job()).transitions == (Transition.CREATED,)
    assert decide(job(STARTED), *pods("running", "running", "running")).transitions == ()
    assert decide(job(STARTED), *pods("succeeded", "running", "running")).transitions == (Transition.SUCCESSFUL,)
    failed = decide(job(STARTED).run_policy(backoffLimit=0), *pods("failed", "running", "running"))
    assert failed.transitions == (Transition.FAILED,)


def test_plan_is_empty_after_every_step_from_creation_to_success() -> None:
    first = decide(job())
    waiting = decide(job(first.status), *pods("pending", "pending", "pending"), services=all_services())
    assert waiting.empty
    running = decide(job(first.status), *pods("running", "running", "pending"), services=all_services(), now=at(5))
    assert conditions(running)[-1] == ("Running", "True", "PyTorchJobRunning", "PyTorchJob digits is running.")
    assert running.events == ()
    assert running.status is not None
    assert running.status["replicaStatuses"]["Worker"] == {"active": 1, "selector": f"{SELECTOR}worker"}
    all_up = decide(job(running.status), *pods("running", "running", "running"), services=all_services(), now=at(6))
    assert all_up.status is not None
    assert all_up.status["conditions"] == running.status["conditions"]
    still = decide(job(all_up.status), *pods("running", "running", "running"), services=all_services(), now=at(7))
    assert still.empty
    done = decide(job(all_up.status), *pods("succeeded", "running", "succeeded"), services=all_services(), now=at(9))
    assert done.status is not None
    assert states(done) == [("Created", "True"), ("Running", "False"), ("Succeeded", "True")]
    assert done.status["completionTime"] == "2026-11-15T04:00:09Z"
    assert done.status["replicaStatuses"] == {
        "Master": {"succeeded": 1, "selector": f"{SELECTOR}master"},
        "Worker": {"succeeded": 2, "selector": f"{SELECTOR}worker"},
    }
    assert done.status["completedIndexes"] == {"Master": "0", "Worker": "1"}
    assert events(done) == [
        ("Normal", "ExitedWithCode", "Pod: team.digits-master-0 exited with code 0"),
        ("Normal", "ExitedWithCode", "Pod: team.digits-worker-1 exited with code 0"),
        ("Normal", "PyTorchJobSucceeded", "PyTorchJob digits is successfully completed."),
    ]
    assert (done.creates, done.deletes) == ((), ())
    assert decide(job(done.status), *pods("succeeded", "running", "succeeded"), services=all_services()).empty
    assert decide(job(done.status)).empty


def test_pod_without_exit_code_records_no_event() -> None:
    silent = PodBuilder("Master")
    silent.object["status"] = {"phase": "Succeeded"}
    made = decide(job(STARTED), silent)
    assert events(made) == [("Normal", "PyTorchJobSucceeded", "PyTorchJob digits is successfully completed.")]


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    assert decide(job().metadata(deletionTimestamp="2026-11-15T04:00:00Z")) == Plan()


def test_job_with_another_manager_is_left_alone() -> None:
    assert decide(job().run_policy(managedBy="kueue.x-k8s.io/multikueue")) == Plan()
    assert decide(job().run_policy(managedBy="kueue.x-k8s.io/multikueue").suspend()) == Plan()


def test_completed_indexes_are_recorded_and_their_pods_not_created_again() -> None:
    first = decide(job(STARTED), *pods("running", "succeeded", "running"), services=all_services())
    assert first.status is not None
    assert first.status["completedIndexes"] == {"Worker": "0"}
    left = [PodBuilder("Master").running(), PodBuilder("Worker", 1).running()]
    later = decide(job(first.status), *left)
    assert created(later) == []
    assert created(later, "Service") == ["digits-master-0", "digits-worker-1"]
    assert later.status is None
    assert first.status["replicaStatuses"]["Worker"]["succeeded"] == 1


def test_scheduling_policy_without_a_gang_scheduler_is_reported_once() -> None:
    builder = job().run_policy(schedulingPolicy={"minAvailable": 3})
    message = (
        "spec.runPolicy.schedulingPolicy: the operator uses no gang scheduler, so pods are scheduled one by one; "
        "start it with --gang-scheduler-name"
    )
    assert events(decide(builder)) == [("Warning", "FieldWithoutEffect", message)]
    assert events(decide(builder.status(STARTED))) == []


def test_another_operators_finished_job_gets_no_new_conditions() -> None:
    status = {"conditions": [{"type": "Succeeded", "status": "True"}], "completionTime": "2026-11-15T03:00:00Z"}
    assert decide(job(status)).empty


def test_children_and_status_of_a_removed_role_are_deleted() -> None:
    first = decide(job(STARTED), *pods("running", "running", "running"), services=all_services())
    alone = JobBuilder().master().status(first.status)
    made = decide(alone, *pods("running", "running", "running"), services=all_services())
    assert made.status is not None
    assert made.status["replicaStatuses"].keys() == {"Master"}
    assert [delete.name for delete in made.deletes] == ["digits-worker-0", "digits-worker-1"] * 2


@given(
    statuses,
    st.lists(st.sampled_from(["pending", "running", "succeeded", "failed"]), min_size=3, max_size=3),
    st.sampled_from([Settings(), EMBEDDED]),
    st.fixed_dictionaries(
        {},
        optional={
            "activeDeadlineSeconds": st.integers(-(2**63), 2**63 - 1),
            "backoffLimit": st.integers(-1, 2),
            "cleanPodPolicy": st.sampled_from(["All", "Running", ""]),
            "suspend": st.booleans(),
            "ttlSecondsAfterFinished": st.integers(-(2**31), 2**31 - 1),
        },
    ),
)
def test_plans_stop_writing_the_status_from_any_start(
    status: Object, phases: list[str], settings: Settings, run_policy: dict[str, Any]
) -> None:
    for _ in range(4):
        made = decide(job(status).run_policy(**run_policy), *pods(*phases), services=all_services(), settings=settings)
        if made.status is None:
            return
        status = made.status
    raise AssertionError(f"still writing: {status}")


@pytest.mark.parametrize("settings", [VOLCANO, PLUGINS, EMBEDDED], ids=["volcano", "plugins", "embedded"])
@given(drawn=of_any_kind(corrupted_specs))
def test_every_readable_job_can_be_planned(settings: Settings, drawn: tuple[Kind, Any]) -> None:
    kind, spec = drawn
    raw = {**JobBuilder(kind=kind).raw(), "spec": spec}
    try:
        read = read_job(raw)
    except InvalidJob as refused:
        read = salvage_job(raw, kind, refused)
    first = plan(read, Observed(), settings, at(0))
    plan(replace(read, raw={**raw, "status": first.status}), Observed(), settings, at(1))


def test_deprecated_fields_are_reported_once() -> None:
    builder = JobBuilder().replica("worker", 1).spec(cleanPodPolicy="All")
    message = [(kind, reason) for kind, reason, _ in events(decide(builder))]
    assert message == [("Warning", "DeprecatedField")] * 2
    assert events(decide(builder.status(STARTED))) == []
