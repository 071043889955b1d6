"""The delay before a pod that failed repeatedly is replaced. The first restarts are immediate; then the delay grows,
as with the kubelet's restarts of containers. This keeps a broken program from filling the cluster with failed pods.

It needs no state of its own: the failed pod is kept until it is replaced, and `status.restarts` has the number of
restarts. The delay counts from the creation of the pod, so a pod that ran for a long time is replaced at once.
"""

from collections.abc import Mapping
from datetime import datetime

from trainwright.engine.children.pod_outcome import exit_code, is_disrupted
from trainwright.engine.children.ranks import Rank
from trainwright.engine.derived_facts import Facts
from trainwright.engine.plan_builder import PlanBuilder
from trainwright.engine.policies.retryable_failures import is_replaceable
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.times import format_time, seconds_after

_IMMEDIATE = 5
"""The number of restarts of a rank before the first delay."""
_SECONDS = (10, 20, 40, 80, 160, 300)


def postponed(facts: Facts) -> Mapping[Rank, datetime]:
    """Failed pods that are not replaced yet, with the time of replacement. Disrupted pods are replaced at once. If the
    job restarts as a group, either all failed pods are postponed or none."""
    failed = facts.pods.failed
    moments = {
        rank: moment
        for rank, pod in failed.items()
        if is_replaceable(facts, rank, pod) and not is_disrupted(pod) and (moment := _not_before(facts, rank, pod))
    }
    if not facts.group_restart or (len(moments) == len(failed) and not facts.pods.deleted):
        return moments
    return {}


def report(facts: Facts, builder: PlanBuilder, postponed: Mapping[Rank, datetime]) -> None:
    """Warns about each postponed pod, and requeues the job for its replacement."""
    for rank, moment in postponed.items():
        builder.requeue_at(moment)
        pod = facts.pods.failed[rank]
        code = exit_code(pod, facts.job.replicas[rank.role].container)
        how = "failed" if code is None else f"failed with exit code {code}"
        builder.warn(
            "RestartBackOff",
            f"Back-off after repeated failures: pod {pod.name} {how} and is replaced at {format_time(moment)}",
        )


def _not_before(facts: Facts, rank: Rank, pod: Pod) -> datetime | None:
    """The time before which the failed pod is not replaced; None if it is due."""
    rounds = _restarts_per_pod(facts, rank) - _IMMEDIATE
    created = pod.metadata.creation_timestamp
    if rounds < 0 or created is None:
        return None
    moment = seconds_after(created, _SECONDS[min(rounds, len(_SECONDS) - 1)])
    return moment if moment is not None and moment > facts.now else None


def _restarts_per_pod(facts: Facts, rank: Rank) -> int:
    """The average number of restarts of a pod of this role; for a group, the number of group restarts."""
    counted = (facts.job.raw.get("status") or {}).get("restarts") or {}
    if facts.group_restart:
        return int(sum(counted.values()))
    return int(counted.get(rank.role, 0)) // facts.job.replicas[rank.role].count
