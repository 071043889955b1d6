"""The status of the job: start time, completed ranks, number of pods by state, conditions."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from trainwright.engine.children.labels import role_selector
from trainwright.engine.children.pod_outcome import exit_code
from trainwright.engine.children.ranks import Rank
from trainwright.engine.conditions import CREATED, FAILED, RESTARTING, RUNNING, is_finished
from trainwright.engine.derived_facts import Facts
from trainwright.engine.framework import RoleState
from trainwright.engine.plan import JobEvent, Transition
from trainwright.engine.plan_builder import PlanBuilder
from trainwright.engine.policies import extra_objects
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.times import format_time


def mark_created(facts: Facts, builder: PlanBuilder) -> None:
    """For a job that is reconciled for the first time: its warnings are recorded once."""
    if builder.set_condition(CREATED, facts.texts.created):
        builder.count(Transition.CREATED)
        for warning in facts.job.warnings:
            builder.record_event("Warning", "DeprecatedField", warning)
        for field in _without_effect(facts):
            builder.record_event("Warning", "FieldWithoutEffect", field)


def mark_started(facts: Facts, builder: PlanBuilder) -> None:
    builder.status.setdefault("startTime", format_time(facts.now))


def record_outcomes(
    facts: Facts, builder: PlanBuilder, states: Mapping[str, RoleState], postponed: Mapping[Rank, datetime]
) -> None:
    """Records the ranks that have completed, and the exit codes of their pods and of failed ones, each once."""
    failing = frozenset(facts.framework.failing_roles(facts.job, states))
    for rank, pod in facts.children.pods.ranked.items():
        if rank in facts.pods.just_completed or (rank in facts.pods.failed and rank not in postponed):
            # a failed pod without which the job continues stays as it is, so every plan reports it
            tolerated = rank in facts.pods.failed and rank.role not in failing
            _record_exit_code(facts, builder, rank, pod, standing=tolerated)
    replicas = facts.job.replicas
    builder.put_completed({role: done for role, done in facts.pods.completed.items() if replicas[role].role.completes})


def count(facts: Facts, builder: PlanBuilder) -> dict[str, RoleState]:
    """The pods of each role by state. Writes their numbers to the status."""
    active: dict[str, dict[int, Pod]] = {role: {} for role in facts.job.replicas}
    for rank, pod in facts.pods.active.items():
        active[rank.role][rank.index] = pod
    failed: dict[str, set[int]] = {role: set() for role in facts.job.replicas}
    for rank in facts.pods.failed:
        failed[rank.role].add(rank.index)
    states = {
        role: RoleState(active[role], completed, frozenset(failed[role]))
        for role, completed in facts.pods.completed.items()
    }
    counted = set(facts.framework.counted_roles(facts.job, states))
    numbers = {role: state if role in counted else RoleState() for role, state in states.items()}
    builder.put("replicaStatuses", {role: _replica_status(facts, role, state) for role, state in numbers.items()})
    return states


def set_conditions(
    facts: Facts, builder: PlanBuilder, states: Mapping[str, RoleState], postponed: Mapping[Rank, datetime]
) -> None:
    """Sets the conditions of a job that has not succeeded."""
    if is_finished(builder.status) or builder.group_restarting:
        return
    if not postponed and facts.framework.is_running(facts.job, states):
        builder.set_condition(RUNNING, facts.texts.running)
    for role in facts.framework.failing_roles(facts.job, states):
        _set_failure_conditions(facts, builder, role, states[role].failed, waiting=bool(postponed))


def _without_effect(facts: Facts) -> Iterator[str]:
    """Messages about fields that have no effect on this cluster, each with what to do instead."""
    job = facts.job
    if job.run_policy.scheduling_policy is not None and facts.settings.gang is None:
        yield (
            "spec.runPolicy.schedulingPolicy: the operator uses no gang scheduler, so pods are scheduled one by one; "
            "start it with --gang-scheduler-name"
        )
    if not job.problem:
        yield from extra_objects.unavailable(facts)


def _set_failure_conditions(
    facts: Facts, builder: PlanBuilder, role: str, indexes: frozenset[int], *, waiting: bool
) -> None:
    texts, failed = facts.texts, len(indexes)
    if facts.job.replicas[role].restart_policy == "Never":
        pods = [facts.pods.failed[Rank(role, index)] for index in sorted(indexes)]
        builder.finish(FAILED, facts.framework.failure_text(facts.job, role, pods), role=role, failed=failed)
        return
    changed = builder.set_condition(RESTARTING, texts.role_restarting, role=role, failed=failed)
    if changed or not waiting:
        builder.record("Warning", texts.role_restarting, role=role, failed=failed)


def _replica_status(facts: Facts, role: str, state: RoleState) -> Object:
    """Zeros are left out, as Kubernetes does."""
    numbers = {"active": len(state.active), "succeeded": len(state.completed), "failed": len(state.failed)}
    status: Object = {name: number for name, number in numbers.items() if number}
    if facts.job.kind.scaled_role is not None:
        status["selector"] = role_selector(facts.job, role)
    return status


def _record_exit_code(facts: Facts, builder: PlanBuilder, rank: Rank, pod: Pod, *, standing: bool) -> None:
    code = exit_code(pod, facts.job.replicas[rank.role].container)
    if code or (code == 0 and facts.framework.records_exit_code_zero):
        message = f"Pod: {facts.job.namespace}.{pod.name} exited with code {code}"
        builder.add_event(JobEvent("Normal", "ExitedWithCode", message, standing=standing))
