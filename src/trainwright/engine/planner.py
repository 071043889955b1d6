"""Plans one job: calls the policies in order. Each policy has its own module."""

from collections.abc import Mapping
from datetime import datetime

from trainwright.api.job import Job
from trainwright.engine import job_annotations
from trainwright.engine.conditions import FAILED, SUCCEEDED, SUSPENDED, is_finished
from trainwright.engine.derived_facts import Facts, assess
from trainwright.engine.framework import Framework
from trainwright.engine.frameworks import FRAMEWORKS
from trainwright.engine.observed_state import Observed
from trainwright.engine.plan import Plan
from trainwright.engine.plan_builder import PlanBuilder
from trainwright.engine.policies import (
    adoption,
    cleanup,
    dead_nodes,
    extra_objects,
    gang,
    limits,
    pod_problems,
    pod_replacement,
    replicas,
    restart_delay,
    status,
    suspend,
)
from trainwright.engine.settings import Settings
from trainwright.objects.conditions import is_condition_true


def plan(
    job: Job,
    observed: Observed,
    settings: Settings,
    now: datetime,
    *,
    frameworks: Mapping[str, Framework] = FRAMEWORKS,
) -> Plan:
    """The changes of the job and its children that are due now."""
    if job.metadata.terminating or job.managed_elsewhere:
        return Plan()
    facts = assess(job, observed, settings, frameworks[job.kind.framework], now)
    builder = PlanBuilder(facts)
    status.mark_created(facts, builder)
    if job.problem:
        builder.finish(FAILED, facts.texts.invalid, event_type="Warning", problem=job.problem)
    adoption.release(facts, builder)
    if is_finished(builder.status):
        cleanup.clean_up(facts, builder)
    elif job.run_policy.suspend:
        suspend.suspend(facts, builder)
        dead_nodes.remove_stranded(facts, builder)
    else:
        if is_condition_true(builder.status, SUSPENDED):
            suspend.resume(facts, builder)
        _run(facts, builder)
    return builder.plan()


def _run(facts: Facts, builder: PlanBuilder) -> None:
    """For a job that should run: creates missing children, replaces failed pods and sets the conditions."""
    if gang.admits(facts):
        # activeDeadlineSeconds starts when the gang scheduler has admitted the group
        status.mark_started(facts, builder)
    pod_problems.report(facts, builder)
    for mistake in job_annotations.mistakes(facts.job):
        builder.warn("InvalidAnnotation", mistake)
    pod_replacement.forget_deleted_pods(facts, builder)
    limit = limits.reached(facts, builder)
    postponed = {} if limit else restart_delay.postponed(facts)  # pods that are not replaced need no back-off
    states = status.count(facts, builder)
    status.record_outcomes(facts, builder, states, postponed)
    if facts.framework.has_succeeded(facts.job, states):
        builder.finish(SUCCEEDED, facts.texts.succeeded)  # takes precedence over failures at the same time
    elif limit:
        builder.finish(FAILED, limit)
    else:
        stranded = dead_nodes.remove_stranded(facts, builder)
        postponed = pod_replacement.replace_failed(facts, builder, stranded=stranded, postponed=postponed)
        adoption.adopt(facts, builder)
        complete = extra_objects.ensure(facts, builder, states)
        replicas.bring_up(facts, builder, admitted=complete and gang.admits(facts))
        status.set_conditions(facts, builder, states, postponed)
    if is_finished(builder.status):
        builder.drop_changes_to_children()
        cleanup.clean_up(facts, builder)
