"""PodGroups: all pods of a job start together, or none."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.engine.planning import DNS, STARTED, child, created, decide, deleted, events, manifests
from tests.support.objects.jobs import JOB_UID, NAMESPACE, JobBuilder, PodBuilder, stored, template
from trainwright.engine import Plan, Settings
from trainwright.engine.settings import Gang
from trainwright.objects import Object

VOLCANO = replace(DNS, gang=Gang("Volcano"))
PLUGINS = replace(DNS, gang=Gang("scheduler-plugins"))
KIND = "PodGroup"
FINISHED = {**STARTED, "conditions": [*STARTED["conditions"], {"type": "Succeeded", "status": "True"}]}


def job(**policy: Any) -> JobBuilder:
    builder = JobBuilder().master().workers(2).status(STARTED)
    return builder.run_policy(schedulingPolicy=policy) if policy else builder


def group(settings: Settings = VOLCANO, *, phase: str = "Inqueue", builder: JobBuilder | None = None) -> Object:
    (made,) = manifests(decide(builder or job(), settings=settings))
    return {**stored(made, "group-uid"), "status": {"phase": phase} if phase else {}}


def with_group(builder: JobBuilder, present: Object, settings: Settings = VOLCANO, *pods: PodBuilder) -> Plan:
    return decide(builder, *pods, settings=settings, extras=[present])


def asking(requests: Object | None = None, limits: Object | None = None, **spec: Any) -> Object:
    pod = template(resources={"requests": requests or {}, "limits": limits or {}})
    pod["spec"] |= spec
    return pod


def test_the_group_comes_before_the_pods() -> None:
    made = decide(job(), settings=VOLCANO)
    assert [(one["kind"], one["apiVersion"]) for one in manifests(made)] == [(KIND, "scheduling.volcano.sh/v1beta1")]
    (pod_group,) = manifests(made)
    assert (pod_group["metadata"]["namespace"], pod_group["metadata"]["name"]) == (NAMESPACE, "digits")
    assert pod_group["metadata"]["ownerReferences"][0]["uid"] == JOB_UID
    assert pod_group["spec"] == {"minMember": 3, "minResources": {}, "queue": "default"}


@pytest.mark.parametrize(("phase", "ready"), [("", False), ("Pending", False), ("Inqueue", True), ("Running", True)])
def test_pods_wait_until_volcano_lets_the_group_in(phase: str, ready: bool) -> None:
    assert bool(created(with_group(job(), group(phase=phase)))) is ready


@pytest.mark.parametrize(("phase", "started"), [("Pending", False), ("Inqueue", True)])
def test_the_time_of_a_job_does_not_run_while_its_group_waits(phase: str, started: bool) -> None:
    builder = JobBuilder().master().workers(2).run_policy(activeDeadlineSeconds=60)
    waiting = with_group(builder, group(phase=phase))
    assert waiting.status is not None
    assert ("startTime" in waiting.status) is started
    assert (waiting.requeue_at is not None) is started


def test_scheduler_plugins_let_pods_in_at_once() -> None:
    made = decide(job(), settings=PLUGINS)
    assert [(one["apiVersion"], one["spec"]) for one in manifests(made)] == [
        ("scheduling.x-k8s.io/v1alpha1", {"minMember": 3})
    ]
    assert len(created(with_group(job(), group(PLUGINS, phase=""), PLUGINS))) == 3


def test_the_policy_fills_the_group() -> None:
    policy = {
        "minAvailable": 2,
        "queue": "research",
        "priorityClass": "high",
        "minResources": {"cpu": "3"},
        "scheduleTimeoutSeconds": 60,
    }
    (volcano,) = manifests(decide(job(**policy), settings=VOLCANO))
    assert volcano["spec"] == {
        "minMember": 2,
        "minResources": {"cpu": "3"},
        "queue": "research",
        "priorityClassName": "high",
    }
    (plugins,) = manifests(decide(job(**policy), settings=PLUGINS))
    assert plugins["spec"] == {"minMember": 2, "minResources": {"cpu": "3"}, "scheduleTimeoutSeconds": 60}


def test_the_jobs_annotations_are_copied_but_for_other_tools_notes() -> None:
    notes = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "trainwright.dev/memory": "{}", "team": "a"}
    (made,) = manifests(decide(job().metadata(annotations=notes), settings=VOLCANO))
    assert made["metadata"]["annotations"] == {"team": "a"}


def test_a_policy_that_asks_for_nothing_gets_nothing() -> None:
    """Not what the pods ask for."""
    builder = JobBuilder().master(pod=asking({"cpu": "1"})).run_policy(schedulingPolicy={"minResources": {}})
    assert group(VOLCANO, builder=builder)["spec"]["minResources"] == {}
    assert "minResources" not in group(PLUGINS, builder=builder)["spec"]


def test_the_least_resources_are_those_of_the_first_members() -> None:
    builder = JobBuilder().master(pod=asking({"cpu": "1", "memory": "1Gi"})).workers(3, pod=asking({"cpu": "500m"}))
    (made,) = manifests(decide(builder, settings=VOLCANO))
    assert made["spec"]["minResources"] == {"cpu": "2500m", "memory": "1Gi"}
    (fewer,) = manifests(decide(builder.run_policy(schedulingPolicy={"minAvailable": 2}), settings=VOLCANO))
    assert fewer["spec"]["minResources"] == {"cpu": "1500m", "memory": "1Gi"}


def test_pods_of_higher_priority_are_counted_first() -> None:
    builder = (
        JobBuilder()
        .master(pod=asking({"cpu": "1"}, priorityClassName="low"))
        .workers(2, pod=asking({"cpu": "4"}, priorityClassName="high"))
        .run_policy(schedulingPolicy={"minAvailable": 1})
    )
    (made,) = manifests(decide(builder, settings=VOLCANO, priorities={"low": 1, "high": 10}))
    assert made["spec"]["minResources"] == {"cpu": "4"}


@pytest.mark.parametrize("of_master", [None, "unknown"])
def test_a_pod_without_a_known_priority_has_none(of_master: str | None) -> None:
    builder = (
        JobBuilder()
        .master(pod=asking({"cpu": "1"}, priorityClassName=of_master))
        .workers(2, pod=asking({"cpu": "4"}, priorityClassName="lowest"))
        .run_policy(schedulingPolicy={"minAvailable": 1})
    )
    for value, expected in ((1, "4"), (0, "1"), (-1, "1")):
        (made,) = manifests(decide(builder, settings=VOLCANO, priorities={"lowest": value}))
        assert made["spec"]["minResources"] == {"cpu": expected}


def test_a_limit_without_a_request_counts_as_one_and_nonsense_does_not() -> None:
    pod = asking({"cpu": "1"}, {"cpu": "2", "nvidia.com/gpu": 1, "memory": "much"})
    (made,) = manifests(decide(JobBuilder().master(pod=pod), settings=VOLCANO))
    assert made["spec"]["minResources"] == {"cpu": "1", "nvidia.com/gpu": "1"}


def test_a_group_that_says_what_the_job_says_is_left_alone() -> None:
    assert with_group(job(), group()).patches == ()


def test_the_group_follows_the_job() -> None:
    (patch,) = with_group(JobBuilder().master().workers(5).status(STARTED), group()).patches
    assert (patch.resource, patch.name, patch.uid) == (Gang("Volcano").resource, "digits", "group-uid")
    assert patch.body["spec"]["minMember"] == 6
    (noted,) = with_group(job().annotation("team", "a"), group()).patches
    assert noted.body == {"metadata": {"annotations": {"team": "a"}}}


@pytest.mark.parametrize("settings", [VOLCANO, PLUGINS], ids=["volcano", "plugins"])
def test_a_resource_that_nobody_asks_for_any_more_leaves_the_group(settings: Settings) -> None:
    """A merge patch keeps what it does not name, and the group would wait for GPUs for ever."""
    before = JobBuilder().master(pod=asking({"cpu": "1", "nvidia.com/gpu": 1})).status(STARTED)
    after = JobBuilder().master(pod=asking({"cpu": "1"})).status(STARTED)
    (patch,) = with_group(after, group(settings, builder=before), settings).patches
    assert patch.body["spec"]["minResources"] == {"cpu": "1", "nvidia.com/gpu": None}
    assert with_group(after, group(settings, builder=after), settings).patches == ()


def test_a_queue_that_somebody_set_on_the_group_is_kept() -> None:
    present = group()
    present["spec"]["queue"] = "moved"
    assert with_group(job(), present).patches == ()


def test_pods_are_marked_as_members() -> None:
    pod = child(with_group(job(), group()), "digits-worker-1")
    assert pod["spec"]["schedulerName"] == "volcano"
    assert pod["metadata"]["annotations"] == {
        "scheduling.k8s.io/group-name": "digits",
        "volcano.sh/task-spec": "worker",
    }
    pod = child(with_group(job(), group(PLUGINS), PLUGINS), "digits-worker-1")
    assert pod["spec"]["schedulerName"] == "scheduler-plugins"
    assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "digits"


def test_a_members_own_annotations_stay() -> None:
    pod = template()
    pod["metadata"] = {"annotations": {"team": "a"}}
    builder = JobBuilder().master(pod=pod).status(STARTED)
    made = child(with_group(builder, group(builder=builder)), "digits-master-0")
    assert made["metadata"]["annotations"]["team"] == "a"
    assert made["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "digits"


@pytest.mark.parametrize(("scheduler", "warned"), [(None, False), ("", False), ("volcano", False), ("mine", True)])
def test_another_scheduler_is_kept_and_told(scheduler: str | None, warned: bool) -> None:
    pod = template()
    if scheduler is not None:
        pod["spec"]["schedulerName"] = scheduler
    builder = JobBuilder().master().workers(1, pod=pod).status(STARTED)
    made = with_group(builder, group(builder=builder))
    assert child(made, "digits-worker-0")["spec"]["schedulerName"] == (scheduler or "volcano")
    assert child(made, "digits-master-0")["spec"]["schedulerName"] == "volcano"
    text = "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"
    assert (("Warning", "SetPodTemplateSchedulerName", text) in events(made)) is warned


def test_the_group_goes_with_the_end_and_with_suspension() -> None:
    told = ("Normal", "JobTerminated", "Job has been terminated. Deleting PodGroup")
    for builder in (job().status(FINISHED), job().suspend()):
        made = with_group(builder, group())
        assert deleted(made, "podgroups") == ["digits"]
        assert told in events(made)


def test_where_there_is_no_group_nothing_is_told() -> None:
    for builder in (job().status(FINISHED), job().suspend()):
        assert "JobTerminated" not in [reason for _, reason, _ in events(decide(builder, settings=VOLCANO))]


def test_pods_wait_for_a_group_that_is_going_or_somebody_elses() -> None:
    going = group()
    going["metadata"]["deletionTimestamp"] = "2026-11-15T04:00:00Z"
    foreign = group()
    foreign["metadata"]["ownerReferences"] = []
    for present in (going, foreign):
        made = with_group(job(), present)
        assert created(made) == []
        assert made.requeue_at is not None


def test_living_pods_are_not_disturbed_while_the_group_is_undecided() -> None:
    pods = [PodBuilder("Master", 0).running(), PodBuilder("Worker", 0).running(), PodBuilder("Worker", 9)]
    made = with_group(job(), group(phase="Pending"), VOLCANO, *pods)
    assert deleted(made) == ["digits-worker-9"]
    assert created(made) == []
