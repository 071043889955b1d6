"""What the job's status says: its start, the ranks that have finished, how many pods stand where, and the verdict."""

from collections import Counter
from collections.abc import Iterator, Mapping

from trainwright.engine.conditions import CREATED, FAILED, RESTARTING, RUNNING, SUCCEEDED, is_finished
from trainwright.engine.draft import Draft
from trainwright.engine.framework import Tally
from trainwright.engine.plan import Transition
from trainwright.engine.pod_outcome import End, end_of, exit_code, is_active
from trainwright.engine.rendering.labels import role_selector
from trainwright.objects import Object
from trainwright.objects.pods import Pod
from trainwright.objects.times import format_time


def mark_created(draft: Draft) -> None:
    """The first look at a job: say so, and say once what its author should change."""
    job = draft.job
    if draft.set_condition(CREATED, word="Created", message=f"{job.kind.name} {job.name} is created."):
        draft.transition(Transition.CREATED)
        for warning in job.warnings:
            draft.tell("Warning", "DeprecatedField", warning)
        for field in _without_effect(draft):
            draft.tell("Warning", "FieldWithoutEffect", field)


def mark_started(draft: Draft) -> None:
    draft.status.setdefault("startTime", format_time(draft.now))


def record_ends(draft: Draft) -> None:
    """Remembers who has finished, and tells each pod's exit code once."""
    completed = {role: draft.completed(role) for role in draft.replicas}
    for rank, pod in draft.children.pods.items():
        fresh = end_of(pod) is End.SUCCEEDED and not draft.is_replaced(pod) and rank.index not in completed[rank.role]
        if fresh:
            completed[rank.role].add(rank.index)
        if fresh or (rank in draft.failures and rank not in draft.postponed):
            _tell_exit(draft, pod)
    draft.complete(completed)


def count(draft: Draft) -> dict[str, Tally]:
    """How the pods of each role stand; the numbers go into the status."""
    active, failed = Counter(_active_roles(draft)), Counter(rank.role for rank in draft.failures)
    tallies = {
        role: Tally(active=active[role], succeeded=len(draft.completed(role)), failed=failed[role])
        for role in draft.replicas
    }
    draft.put("replicaStatuses", {role: _replica_status(draft, role, tally) for role, tally in tallies.items()})
    return tallies


def succeed(draft: Draft) -> None:
    draft.finish(SUCCEEDED, message=draft.framework.succeeded_message(draft.job))


def judge(draft: Draft, tallies: Mapping[str, Tally]) -> None:
    """Sets the condition that follows from the numbers of a job that has not succeeded, the deciding role first."""
    job, framework = draft.job, draft.framework
    if is_finished(draft.status) or draft.group_goes:
        return
    if tallies[framework.decider(job)].active > 0 and not draft.postponed:
        draft.set_condition(RUNNING, word="Running", message=framework.running_message(job))
    for role, tally in tallies.items():
        _judge_failures(draft, role, tally)


def _without_effect(draft: Draft) -> Iterator[str]:
    """Fields that the job sets and nobody honours, each with what to do instead."""
    job, settings = draft.job, draft.settings
    if job.run_policy.scheduling_policy is not None and settings.gang is None:
        yield (
            "spec.runPolicy.schedulingPolicy: pods are scheduled one by one, this operator schedules no gangs; "
            "start it with --gang-scheduler-name"
        )
    if not job.problem and not settings.autoscaling and draft.framework.autoscaling(job) is not None:
        yield "spec.elasticPolicy.metrics: no HorizontalPodAutoscaler is created here; use kubectl scale"


def _judge_failures(draft: Draft, role: str, tally: Tally) -> None:
    job, replica = draft.job, draft.replicas[role]
    if tally.failed == 0:
        return
    if replica.restart_policy == "Never":
        draft.finish(
            FAILED, message=f"{job.kind.name} {job.name} is failed because {tally.failed} {role} replica(s) failed."
        )
        return
    message = f"{job.kind.name} {job.name} is restarting because {tally.failed} {role} replica(s) failed."
    changed = draft.set_condition(RESTARTING, word="Restarting", message=message)
    if changed or not draft.postponed:
        draft.tell("Warning", draft.reason("Restarting"), message)


def _active_roles(draft: Draft) -> Iterator[str]:
    """The role of each pod that runs and is to stay."""
    if not draft.group_goes:
        yield from (
            rank.role for rank, pod in draft.children.pods.items() if is_active(pod) and not draft.is_replaced(pod)
        )


def _replica_status(draft: Draft, role: str, tally: Tally) -> Object:
    """Zeros are left out, as Kubernetes does."""
    numbers = {"active": tally.active, "succeeded": tally.succeeded, "failed": tally.failed}
    status: Object = {name: number for name, number in numbers.items() if number}
    if draft.job.kind.scaled_role is not None:
        status["selector"] = role_selector(draft.job, role)
    return status


def _tell_exit(draft: Draft, pod: Pod) -> None:
    code = exit_code(pod, draft.job.kind.container)
    if code is not None:
        draft.tell("Normal", "ExitedWithCode", f"Pod: {draft.job.namespace}.{pod.name} exited with code {code}")
