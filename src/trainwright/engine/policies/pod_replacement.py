"""Replaces failed pods or fails the job, by the restart policy of their role. Counts the restarts.

If the job or the operator asks for it, all pods are replaced when one fails, because one rank cannot rejoin a
collective. All pods are deleted, and new ones are created when the last old one is gone. Such a group restart counts
once, even if several pods failed. It is in progress as long as `status.replacedPods` is not empty.
"""

from collections.abc import Mapping
from datetime import datetime

from trainwright.engine.children.pod_outcome import PodOutcome, outcome_of
from trainwright.engine.children.ranks import Rank
from trainwright.engine.conditions import FAILED, RESTARTING
from trainwright.engine.derived_facts import Facts
from trainwright.engine.plan import Transition
from trainwright.engine.plan_builder import PlanBuilder
from trainwright.engine.policies import restart_delay
from trainwright.engine.policies.retryable_failures import is_excused, is_replaceable
from trainwright.objects.kinds.pods import Pod


def forget_deleted_pods(facts: Facts, builder: PlanBuilder) -> None:
    """Drops replaced pods that no longer exist. A group restart keeps its list until every old pod is gone."""
    builder.replaced = set(facts.replaced)


def restart_count(facts: Facts) -> int:
    """The restarts that count against backoffLimit: replaced pods, failed pods that are about to be replaced, and
    restarts by the kubelet in active pods."""
    due = sum(_costs(facts, facts.pods.failed).values())
    return sum(_counted(facts).values()) + due + sum(_kubelet_restarts(facts).values())


def replace_failed(
    facts: Facts, builder: PlanBuilder, *, stranded: frozenset[str], postponed: Mapping[Rank, datetime]
) -> Mapping[Rank, datetime]:
    """Returns the failed pods that are still postponed. `stranded`: UIDs of pods that are deleted with a dead node."""
    for rank, pod in facts.pods.failed.items():
        if facts.job.replicas[rank.role].restart_policy == "ExitCode" and not is_replaceable(facts, rank, pod):
            builder.finish(FAILED, facts.texts.permanent_exit_code, event_type="Warning", role=rank.role)
            return postponed
    if facts.group_restart:
        if _restart_group(facts, builder, stranded, postponed):
            postponed = {}
    else:
        _replace_one_by_one(facts, builder, postponed)
    restart_delay.report(facts, builder, postponed)
    return postponed


def _replace_one_by_one(facts: Facts, builder: PlanBuilder, postponed: Mapping[Rank, datetime]) -> None:
    replaced = {
        rank: pod
        for rank, pod in facts.pods.failed.items()
        if is_replaceable(facts, rank, pod) and rank not in postponed
    }
    _count(facts, builder, _costs(facts, replaced), replaced)
    for rank in replaced:
        builder.count(Transition.RESTARTED)
        builder.set_condition(RESTARTING, facts.texts.pod_restarting, role=rank.role)
        builder.record("Warning", facts.texts.pod_restarting, role=rank.role)


def _restart_group(
    facts: Facts, builder: PlanBuilder, stranded: frozenset[str], postponed: Mapping[Rank, datetime]
) -> bool:
    """True if the group restarts now."""
    failed = facts.pods.failed
    if facts.group_restarting or any(not is_replaceable(facts, rank, pod) for rank, pod in failed.items()):
        return False
    lost = {rank: pod for rank, pod in facts.children.pods.ranked.items() if pod.metadata.uid in stranded}
    ended = {**failed, **facts.pods.deleted, **lost}
    if not ended or (postponed and not lost):
        return False
    costs = _costs(facts, failed)
    for role, restarts in _kubelet_restarts(facts).items():
        costs[role] = costs.get(role, 0) + restarts
    _count(facts, builder, costs, ended)
    builder.count(Transition.RESTARTED)
    first = next(iter(ended.values()))
    outcome = "failed" if outcome_of(first) is PodOutcome.FAILED else "was deleted"
    builder.set_condition(RESTARTING, facts.texts.group_restarting, pod=first.name, outcome=outcome)
    builder.record("Warning", facts.texts.group_restarting, pod=first.name, outcome=outcome)
    return True


def _count(facts: Facts, builder: PlanBuilder, costs: Mapping[str, int], replaced: Mapping[Rank, Pod]) -> None:
    """Records the counted pods before any of them is deleted, so that no failure is counted twice."""
    counted = _counted(facts)
    for role, cost in costs.items():
        counted[role] = counted.get(role, 0) + cost
    builder.put("restarts", {role: count for role, count in counted.items() if count})
    builder.replaced |= {pod.metadata.uid for pod in replaced.values()}


def _counted(facts: Facts) -> dict[str, int]:
    """By role, the restarts that the status has already counted."""
    return dict((facts.job.raw.get("status") or {}).get("restarts") or {})


def _costs(facts: Facts, failed: Mapping[Rank, Pod]) -> dict[str, int]:
    """By role, the restarts that replacing the failed pods adds: the kubelet's restarts in them, and one for each pod
    or for the group."""
    costs: dict[str, int] = {}
    counted = False
    for rank, pod in failed.items():
        if is_replaceable(facts, rank, pod):
            counts = not is_excused(facts, pod) and not (facts.group_restart and counted)
            counted = counted or counts
            costs[rank.role] = costs.get(rank.role, 0) + pod.restarts + int(counts)
    return costs


def _kubelet_restarts(facts: Facts) -> dict[str, int]:
    """By role, restarts by the kubelet in active pods; the policy Never has none."""
    costs: dict[str, int] = {}
    for rank, pod in facts.pods.active.items():
        if facts.job.replicas[rank.role].restart_policy != "Never":
            costs[rank.role] = costs.get(rank.role, 0) + pod.restarts
    return costs
