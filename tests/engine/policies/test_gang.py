"""PodGroups: the scheduler starts all pods of a job or none."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.engine.planning import DNS, STARTED, child, created, decide, deleted, events, manifests
from tests.support.objects.jobs import JOB_UID, NAMESPACE, JobBuilder, PodBuilder, stored, template
from trainwright.api.kinds import KINDS, Kind
from trainwright.engine import Plan, Settings
from trainwright.objects import Object
from trainwright.objects.kinds.gangs import GangScheduler

VOLCANO = replace(DNS, gang=GangScheduler("Volcano"))
PLUGINS = replace(DNS, gang=GangScheduler("scheduler-plugins"))
KIND = "PodGroup"
FINISHED = {**STARTED, "conditions": [*STARTED["conditions"], {"type": "Succeeded", "status": "True"}]}


def job(**policy: Any) -> JobBuilder:
    builder = JobBuilder().master().workers(2).status(STARTED)
    return builder.run_policy(schedulingPolicy=policy) if policy else builder


def group(settings: Settings = VOLCANO, *, phase: str = "Inqueue", builder: JobBuilder | None = None) -> Object:
    (made,) = [one for one in manifests(decide(builder or job(), settings=settings)) if one["kind"] == "PodGroup"]
    return {**stored(made, "group-uid"), "status": {"phase": phase} if phase else {}}


def with_group(builder: JobBuilder, present: Object, settings: Settings = VOLCANO, *pods: PodBuilder) -> Plan:
    return decide(builder, *pods, settings=settings, extras=[present])


def asking(
    requests: Object | None = None, limits: Object | None = None, container: str = "pytorch", **spec: Any
) -> Object:
    pod = template(name=container, resources={"requests": requests or {}, "limits": limits or {}})
    pod["spec"] |= spec
    return pod


def test_pod_group_is_created_before_the_pods() -> None:
    made = decide(job(), settings=VOLCANO)
    assert [(one["kind"], one["apiVersion"]) for one in manifests(made)] == [(KIND, "scheduling.volcano.sh/v1beta1")]
    (pod_group,) = manifests(made)
    assert (pod_group["metadata"]["namespace"], pod_group["metadata"]["name"]) == (NAMESPACE, "digits")
    assert pod_group["metadata"]["ownerReferences"][0]["uid"] == JOB_UID
    assert pod_group["spec"] == {"minMember": 3, "minResources": {}, "queue": "default"}


@pytest.mark.parametrize(("phase", "ready"), [("", False), ("Pending", False), ("Inqueue", True), ("Running", True)])
def test_pods_are_created_after_volcano_admits_the_group(phase: str, ready: bool) -> None:
    assert bool(created(with_group(job(), group(phase=phase)))) is ready


@pytest.mark.parametrize(("phase", "started"), [("Pending", False), ("Inqueue", True)])
def test_deadline_does_not_start_before_the_group_is_admitted(phase: str, started: bool) -> None:
    builder = JobBuilder().master().workers(2).run_policy(activeDeadlineSeconds=60)
    waiting = with_group(builder, group(phase=phase))
    assert waiting.status is not None
    assert ("startTime" in waiting.status) is started
    assert (waiting.requeue_at is not None) is started


def test_scheduler_plugins_admit_pods_at_once() -> None:
    made = decide(job(), settings=PLUGINS)
    assert [(one["apiVersion"], one["spec"]) for one in manifests(made)] == [
        ("scheduling.x-k8s.io/v1alpha1", {"minMember": 3})
    ]
    assert len(created(with_group(job(), group(PLUGINS, phase=""), PLUGINS))) == 3


def test_pod_group_has_the_fields_of_the_scheduling_policy() -> None:
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


def test_annotations_of_the_job_are_copied_except_those_of_tools() -> None:
    annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "trainwright.dev/memory": "{}",
        "team": "a",
    }
    (made,) = manifests(decide(job().metadata(annotations=annotations), settings=VOLCANO))
    assert made["metadata"]["annotations"] == {"team": "a"}


def test_empty_min_resources_stay_empty() -> None:
    """They are not replaced by the requests of the pods."""
    builder = JobBuilder().master(pod=asking({"cpu": "1"})).run_policy(schedulingPolicy={"minResources": {}})
    assert group(VOLCANO, builder=builder)["spec"]["minResources"] == {}
    assert "minResources" not in group(PLUGINS, builder=builder)["spec"]


def test_min_resources_are_the_requests_of_the_first_members() -> None:
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


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_all_kinds_have_pod_groups(kind: Kind) -> None:
    """The roles are counted in their order, the deciding one first."""
    roles = [role.name for role in kind.roles if (kind.name, role.name) != ("TFJob", "Master")]  # it has a Chief
    builder = JobBuilder(kind=kind)
    for number, role in enumerate(roles):
        builder.replica(role, pod=asking({"cpu": str(10**number)}, container=kind.container or "main"))
    for members in range(1, len(roles) + 1):
        spec = group(builder=builder.run_policy(schedulingPolicy={"minAvailable": members}))["spec"]
        assert spec == {"minMember": members, "minResources": {"cpu": "1" * members}, "queue": "default"}
    assert group(builder=builder.run_policy(schedulingPolicy=None))["spec"]["minMember"] == len(roles)


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


def test_limit_without_a_request_counts_as_request_and_invalid_quantities_do_not() -> None:
    pod = asking({"cpu": "1"}, {"cpu": "2", "nvidia.com/gpu": 1, "memory": "much"})
    (made,) = manifests(decide(JobBuilder().master(pod=pod), settings=VOLCANO))
    assert made["spec"]["minResources"] == {"cpu": "1", "nvidia.com/gpu": "1"}


def test_current_pod_group_is_not_changed() -> None:
    assert with_group(job(), group()).patches == ()


def test_pod_group_is_patched_when_the_job_changes() -> None:
    (patch,) = with_group(JobBuilder().master().workers(5).status(STARTED), group()).patches
    assert (patch.resource, patch.name, patch.uid) == (GangScheduler("Volcano").resource, "digits", "group-uid")
    assert patch.body["spec"]["minMember"] == 6
    (noted,) = with_group(job().annotation("team", "a"), group()).patches
    assert noted.body == {"metadata": {"annotations": {"team": "a"}}}


@pytest.mark.parametrize("settings", [VOLCANO, PLUGINS], ids=["volcano", "plugins"])
def test_resource_that_no_replica_requests_is_removed_from_the_group(settings: Settings) -> None:
    """A merge patch keeps other fields, and the group would wait for GPUs for ever."""
    before = JobBuilder().master(pod=asking({"cpu": "1", "nvidia.com/gpu": 1})).status(STARTED)
    after = JobBuilder().master(pod=asking({"cpu": "1"})).status(STARTED)
    (patch,) = with_group(after, group(settings, builder=before), settings).patches
    assert patch.body["spec"]["minResources"] == {"cpu": "1", "nvidia.com/gpu": None}
    assert with_group(after, group(settings, builder=after), settings).patches == ()


def test_queue_that_an_administrator_set_is_kept() -> None:
    present = group()
    present["spec"]["queue"] = "moved"
    assert with_group(job(), present).patches == ()


def test_pods_are_members_of_the_group() -> None:
    pod = child(with_group(job(), group()), "digits-worker-1")
    assert pod["spec"]["schedulerName"] == "volcano"
    assert pod["metadata"]["annotations"] == {
        "scheduling.k8s.io/group-name": "digits",
        "volcano.sh/task-spec": "worker",
    }
    pod = child(with_group(job(), group(PLUGINS), PLUGINS), "digits-worker-1")
    assert pod["spec"]["schedulerName"] == "scheduler-plugins"
    assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "digits"


def test_annotations_of_the_template_are_kept() -> None:
    pod = template()
    pod["metadata"] = {"annotations": {"team": "a"}}
    builder = JobBuilder().master(pod=pod).status(STARTED)
    made = child(with_group(builder, group(builder=builder)), "digits-master-0")
    assert made["metadata"]["annotations"]["team"] == "a"
    assert made["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "digits"


@pytest.mark.parametrize(("scheduler", "warned"), [(None, False), ("", False), ("volcano", False), ("mine", True)])
def test_scheduler_of_the_template_is_kept_with_a_warning(scheduler: str | None, warned: bool) -> None:
    pod = template()
    if scheduler is not None:
        pod["spec"]["schedulerName"] = scheduler
    builder = JobBuilder().master().workers(1, pod=pod).status(STARTED)
    made = with_group(builder, group(builder=builder))
    assert child(made, "digits-worker-0")["spec"]["schedulerName"] == (scheduler or "volcano")
    assert child(made, "digits-master-0")["spec"]["schedulerName"] == "volcano"
    text = "Another scheduler is specified when gang-scheduling is enabled and it will not be overwritten"
    assert (("Warning", "SetPodTemplateSchedulerName", text) in events(made)) is warned


def test_pod_group_is_deleted_when_the_job_finishes_or_is_suspended() -> None:
    event = ("Normal", "JobTerminated", "Job has been terminated. Deleting PodGroup")
    for builder in (job().status(FINISHED), job().suspend()):
        made = with_group(builder, group())
        assert deleted(made, "podgroups") == ["digits"]
        assert event in events(made)


def test_no_event_is_recorded_without_a_pod_group() -> None:
    for builder in (job().status(FINISHED), job().suspend()):
        assert "JobTerminated" not in [reason for _, reason, _ in events(decide(builder, settings=VOLCANO))]


def test_no_pod_is_created_while_the_group_is_terminating_or_foreign() -> None:
    terminating = group()
    terminating["metadata"]["deletionTimestamp"] = "2026-11-15T04:00:00Z"
    foreign = group()
    foreign["metadata"]["ownerReferences"] = []
    for present in (terminating, foreign):
        made = with_group(job(), present)
        assert created(made) == []
        assert made.requeue_at is not None


def test_existing_pods_are_kept_while_the_group_is_pending() -> None:
    pods = [PodBuilder("Master", 0).running(), PodBuilder("Worker", 0).running(), PodBuilder("Worker", 9)]
    made = with_group(job(), group(phase="Pending"), VOLCANO, *pods)
    assert deleted(made) == ["digits-worker-9"]
    assert created(made) == []


def test_the_group_blames_its_policy_and_is_announced_when_it_is_deleted_alone() -> None:
    (create,) = decide(job(), settings=VOLCANO).creates
    assert (create.job_field, create.with_event) == ("spec.runPolicy.schedulingPolicy", False)
    (delete,) = with_group(job().suspend(), group()).deletes
    assert (delete.resource.kind, delete.with_event) == (KIND, True)


def test_a_group_that_is_being_deleted_already_is_not_reported() -> None:
    present = group()
    present["metadata"]["deletionTimestamp"] = "2026-11-15T04:00:00Z"
    made = with_group(job().suspend(), present)
    assert not made.deletes
    assert "JobTerminated" not in {reason for _, reason, _ in events(made)}


def test_pods_wait_although_the_group_of_another_owner_was_let_in() -> None:
    foreign = group()
    foreign["metadata"]["ownerReferences"][0]["uid"] = "another"
    assert created(with_group(job(), foreign)) == []
    new = with_group(JobBuilder().master().workers(2), foreign)
    assert new.status is not None
    assert "startTime" not in new.status
