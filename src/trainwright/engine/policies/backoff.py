"""How long the replacement of a pod that fails again and again has to wait: not at all at first, then longer and
longer, as the kubelet does with containers. A broken program must not fill the cluster with pods that end at once.

Nothing has to be remembered for it: the failed pod is kept until its time has come, `status.restarts` says how often it
happened, and a pod that lived for long is replaced at once, because the delay counts from its creation.
"""

from collections.abc import Mapping
from datetime import datetime

from trainwright.engine.builder import PlanBuilder
from trainwright.engine.facts import Facts
from trainwright.engine.pod_outcome import exit_code, is_disrupted
from trainwright.engine.policies.restart_policy import is_replaceable
from trainwright.engine.ranks import Rank
from trainwright.objects.pods import Pod
from trainwright.objects.times import format_time, seconds_after

_IMMEDIATE = 5
"""So many restarts of a rank never wait."""
_SECONDS = (10, 20, 40, 80, 160, 300)


def postponed(facts: Facts) -> Mapping[Rank, datetime]:
    """Failed pods that are not replaced yet, and when they are. Disrupted pods never wait; of a group that restarts as
    one either all failed pods wait or none."""
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
    """Records why each pod waits, and requeues the job for when it is time."""
    for rank, moment in postponed.items():
        builder.requeue_at(moment)
        pod = facts.pods.failed[rank]
        code = exit_code(pod, facts.job.replicas[rank.role].container)
        how = "failed" if code is None else f"failed with exit code {code}"
        builder.warn(
            "RestartBackOff",
            f"Pod {pod.name} {how} soon after its start, and not for the first time: "
            f"it is replaced at {format_time(moment)}",
        )


def _not_before(facts: Facts, rank: Rank, pod: Pod) -> datetime | None:
    """The moment before which the failed pod is not replaced; None if that is now."""
    rounds = _restarts_per_pod(facts, rank) - _IMMEDIATE
    created = pod.metadata.creation_timestamp
    if rounds < 0 or created is None:
        return None
    moment = seconds_after(created, _SECONDS[min(rounds, len(_SECONDS) - 1)])
    return moment if moment is not None and moment > facts.now else None


def _restarts_per_pod(facts: Facts, rank: Rank) -> int:
    """How often a pod of this role was replaced so far, on the average; as a group, how often the group was."""
    counted = (facts.job.raw.get("status") or {}).get("restarts") or {}
    if facts.group_restart:
        return int(sum(counted.values()))
    return int(counted.get(rank.role, 0)) // facts.job.replicas[rank.role].count
