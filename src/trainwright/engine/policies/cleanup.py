"""Cleans up a finished job: deletes its pods by cleanPodPolicy, and the job by ttlSecondsAfterFinished."""

from trainwright.engine.conditions import FAILED, SUCCEEDED
from trainwright.engine.derived_facts import Facts
from trainwright.engine.plan_builder import PlanBuilder
from trainwright.engine.policies import extra_objects
from trainwright.objects.conditions import find_condition, is_condition_true
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.times import seconds_after


def clean_up(facts: Facts, builder: PlanBuilder) -> None:
    if is_condition_true(builder.status, SUCCEEDED):
        _count_active_as_succeeded(builder)
    builder.replaced.clear()
    policy = facts.job.run_policy.clean_pod_policy
    if policy != "None":
        _delete_children(facts, builder, only_unfinished=policy == "Running")
    extra_objects.remove(facts, builder, suspended=False)
    _expire(facts, builder)


def _count_active_as_succeeded(builder: PlanBuilder) -> None:
    """As upstream does: pods that still run when the job has succeeded count as succeeded."""
    for status in (builder.status.get("replicaStatuses") or {}).values():
        if active := status.pop("active", 0):
            status["succeeded"] = status.get("succeeded", 0) + active


def _delete_children(facts: Facts, builder: PlanBuilder, *, only_unfinished: bool) -> None:
    kept = {pod.name for pod in facts.children.pods.controlled if only_unfinished and _is_kept(pod)}
    for resource, children in facts.children.by_resource:
        for child in children.controlled:
            if child.metadata.name not in kept:
                builder.delete(resource, child.metadata)


def _is_kept(pod: Pod) -> bool:
    return pod.phase not in {"Running", "Pending"} and not pod.metadata.terminating


def _expire(facts: Facts, builder: PlanBuilder) -> None:
    """Deletes the job after ttlSecondsAfterFinished. As in upstream, a suspended job is kept."""
    policy = facts.job.run_policy
    seconds, finished = policy.ttl_seconds_after_finished, _finished_at(builder)
    if seconds is None or finished is None or policy.suspend:
        return
    end = seconds_after(finished, seconds)
    if end is None:
        return
    if facts.now >= end:
        builder.delete_job = True
    else:
        builder.requeue_at(end)


def _finished_at(builder: PlanBuilder) -> str | None:
    """Other operators do not set completionTime after some failures; then the time of the condition is used."""
    type_ = SUCCEEDED if is_condition_true(builder.status, SUCCEEDED) else FAILED
    condition = find_condition(builder.status, type_) or {}
    return builder.status.get("completionTime") or condition.get("lastTransitionTime")
