"""The whole decision about one job, from top to bottom; each policy has a file of its own."""

from collections.abc import Mapping
from datetime import datetime

from trainwright.api.job import Job
from trainwright.engine import job_annotations
from trainwright.engine.conditions import FAILED, SUSPENDED, is_finished
from trainwright.engine.draft import Draft
from trainwright.engine.framework import Framework
from trainwright.engine.frameworks import FRAMEWORKS
from trainwright.engine.observed import Observed
from trainwright.engine.plan import Plan
from trainwright.engine.policies import (
    adoption,
    autoscaling,
    cleanup,
    dead_nodes,
    gang,
    limits,
    pod_problems,
    ports,
    refusal,
    replicas,
    restarts,
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
    """What should change about this job and its children now."""
    if job.metadata.terminating or job.managed_elsewhere:
        return Plan()
    draft = Draft(job, observed, settings, framework=frameworks[job.kind.framework], now=now)
    status.mark_created(draft)
    if job.problem:
        refusal.refuse(draft)
    adoption.release(draft)
    if is_finished(draft.status):
        _settle(draft)
    elif job.run_policy.suspend:
        suspend.suspend(draft)
        dead_nodes.remove_stranded(draft)
        _dissolve(draft)
    else:
        if is_condition_true(draft.status, SUSPENDED):
            suspend.resume(draft)
        _run(draft)
    return draft.plan()


def _run(draft: Draft) -> None:
    """A job that shall run: bring up what is missing, replace what failed, and judge where it stands."""
    if gang.admits(draft):
        status.mark_started(draft)  # its deadline does not run while it waits for a place
    pod_problems.report(draft)
    for mistake in job_annotations.mistakes(draft.job):
        draft.notice("InvalidAnnotation", mistake)
    if ports.choose(draft):
        return  # the choice must be on record before the first pod is made for it
    restarts.strike_off_the_gone(draft)
    if not (limit := limits.reached(draft)):
        restarts.postpone(draft)  # whom nobody will replace has nothing to wait for
    status.record_ends(draft)
    tallies = status.count(draft)
    if draft.framework.succeeded(draft.job, tallies):
        status.succeed(draft)  # whatever else has happened at the same time
    elif limit:
        draft.finish(FAILED, message=limit)
    else:
        restarts.replace_failed(draft, stranded=dead_nodes.remove_stranded(draft))
        autoscaling.keep(draft)
        adoption.adopt(draft)
        gang.keep(draft)
        replicas.bring_up(draft, admitted=gang.admits(draft))
        status.judge(draft, tallies)
    if is_finished(draft.status):
        draft.drop_changes_to_children()
        _settle(draft)


def _settle(draft: Draft) -> None:
    cleanup.settle(draft)
    _dissolve(draft)


def _dissolve(draft: Draft) -> None:
    """A job without pods to start is no gang, and nothing to scale."""
    gang.disband(draft)
    autoscaling.remove(draft)
