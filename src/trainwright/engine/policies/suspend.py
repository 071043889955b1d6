"""A suspended job has no pods, whatever its cleanPodPolicy; a resumed one starts from the beginning."""

from trainwright.engine.conditions import RUNNING, SUSPENDED
from trainwright.engine.draft import Draft
from trainwright.objects.conditions import is_condition_true
from trainwright.objects.times import format_time


def suspend(draft: Draft) -> None:
    job = draft.job
    message = f"{job.kind.name} {job.name} is suspended."
    for pod in draft.children.all_pods:
        draft.delete_pod(pod)
    for service in draft.children.all_services:
        draft.delete_service(service)
    for status in (draft.status.get("replicaStatuses") or {}).values():
        status.pop("active", None)
    _forget_the_run(draft)
    if is_condition_true(draft.status, RUNNING):
        draft.set_condition(RUNNING, word="Suspended", message=message, truth=False)
    if draft.set_condition(SUSPENDED, word="Suspended", message=message):
        draft.tell("Normal", draft.reason("Suspended"), message)


def resume(draft: Draft) -> None:
    """For a job that is marked as suspended and shall run again."""
    job = draft.job
    message = f"{job.kind.name} {job.name} is resumed."
    draft.set_condition(SUSPENDED, word="Resumed", message=message, truth=False)
    draft.status["startTime"] = format_time(draft.now)
    draft.tell("Normal", draft.reason("Resumed"), message)


def _forget_the_run(draft: Draft) -> None:
    """A collective starts again with all its ranks. How the pods of this run end means nothing for the next one.

    Who has gone is struck off with the last of them: a thousand pods that go one by one are not worth as many writes.
    """
    for field in ("completedIndexes", "restarts", "ports"):
        draft.put(field, None)
    present = {pod.metadata.uid for pod in draft.children.all_pods}
    draft.replaced = draft.replaced | present if present else set()
