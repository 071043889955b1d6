"""Suspends a job: deletes its pods regardless of cleanPodPolicy. A resumed job starts from the beginning."""

from trainwright.engine.conditions import RUNNING, SUSPENDED
from trainwright.engine.derived_facts import Facts
from trainwright.engine.plan_builder import PlanBuilder
from trainwright.engine.policies import extra_objects
from trainwright.objects.conditions import is_condition_true
from trainwright.objects.times import format_time


def suspend(facts: Facts, builder: PlanBuilder) -> None:
    for resource, children in facts.children.by_resource:
        for child in children.controlled:
            builder.delete(resource, child.metadata)
    extra_objects.remove(facts, builder, suspended=True)
    for status in (builder.status.get("replicaStatuses") or {}).values():
        status.pop("active", None)
    _reset(facts, builder)
    if is_condition_true(builder.status, RUNNING):
        builder.set_condition(RUNNING, facts.texts.suspended, False)
    if builder.set_condition(SUSPENDED, facts.texts.suspended):
        builder.record("Normal", facts.texts.suspended)


def resume(facts: Facts, builder: PlanBuilder) -> None:
    """For a job with the condition Suspended that should run again."""
    builder.set_condition(SUSPENDED, facts.texts.resumed, False)
    builder.status["startTime"] = format_time(facts.now)
    builder.record("Normal", facts.texts.resumed)


def _reset(facts: Facts, builder: PlanBuilder) -> None:
    """All ranks start again when the job is resumed; the outcomes of the existing pods no longer count.

    Their UIDs stay in the status until the last pod is gone: one write for each of a thousand pods would be too many.
    """
    for field in ("completedIndexes", "restarts"):
        builder.put(field, None)
    present = {pod.metadata.uid for pod in facts.children.pods.controlled}
    builder.replaced = builder.replaced | present if present else set()
