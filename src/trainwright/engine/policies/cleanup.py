"""What is left of a job that has finished: which pods go, and when the job itself goes."""

from trainwright.engine.conditions import FAILED, SUCCEEDED
from trainwright.engine.draft import Draft
from trainwright.engine.moments import after
from trainwright.objects.conditions import find_condition, is_condition_true
from trainwright.objects.pods import Pod


def settle(draft: Draft) -> None:
    if is_condition_true(draft.status, SUCCEEDED):
        _count_all_as_succeeded(draft)
    draft.replaced.clear()
    policy = draft.job.run_policy.clean_pod_policy
    if policy != "None":
        _delete_children(draft, only_unfinished=policy == "Running")
    _expire(draft)


def _count_all_as_succeeded(draft: Draft) -> None:
    """Pods that still run when the deciding role has succeeded are done too."""
    for status in (draft.status.get("replicaStatuses") or {}).values():
        if active := status.pop("active", 0):
            status["succeeded"] = status.get("succeeded", 0) + active


def _delete_children(draft: Draft, *, only_unfinished: bool) -> None:
    kept = {pod.name for pod in draft.children.all_pods if only_unfinished and _is_kept(pod)}
    for pod in draft.children.all_pods:
        if pod.name not in kept:
            draft.delete_pod(pod)
    for service in draft.children.all_services:
        if service.metadata.name not in kept:
            draft.delete_service(service)


def _is_kept(pod: Pod) -> bool:
    return pod.phase not in {"Running", "Pending"} and not pod.metadata.terminating


def _expire(draft: Draft) -> None:
    """ttlSecondsAfterFinished; a job that is suspended as well is kept, as upstream does."""
    seconds = draft.job.run_policy.ttl_seconds_after_finished
    finished = _finished_at(draft)
    if seconds is None or finished is None or draft.job.run_policy.suspend:
        return
    end = after(finished, seconds)
    if end is None:
        return
    if draft.now >= end:
        draft.delete_job = True
    else:
        draft.wake(end)


def _finished_at(draft: Draft) -> str | None:
    """Other operators leave completionTime out after some failures; then the condition knows."""
    verdict = find_condition(draft.status, SUCCEEDED if is_condition_true(draft.status, SUCCEEDED) else FAILED) or {}
    return draft.status.get("completionTime") or verdict.get("lastTransitionTime")
