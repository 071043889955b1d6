"""How long the successor of a pod that fails again and again has to wait: not at all at first, then longer and longer,
as the kubelet does with containers. A program that is broken must not occupy the cluster with pods that end at once.

Nothing has to be remembered for it: the pod that failed is kept until its time has come, how often it happened stands
in `status.restarts`, and a pod that lived for long is always replaced at once, because the time counts from its birth.
"""

from datetime import datetime

from trainwright.engine.draft import Draft
from trainwright.engine.moments import after
from trainwright.engine.pod_outcome import exit_code
from trainwright.engine.ranks import Rank
from trainwright.objects.pods import Pod
from trainwright.objects.times import format_time

_AT_ONCE = 5
"""So many restarts of a rank never wait."""
_SECONDS = (10, 20, 40, 80, 160, 300)


def not_before(draft: Draft, rank: Rank, pod: Pod) -> datetime | None:
    """The moment before which the failed pod is not replaced; None if that is now."""
    rounds = _rounds(draft, rank) - _AT_ONCE
    born = pod.metadata.creation_timestamp
    if rounds < 0 or born is None:
        return None
    moment = after(born, _SECONDS[min(rounds, len(_SECONDS) - 1)])
    return moment if moment is not None and moment > draft.now else None


def report(draft: Draft) -> None:
    """Says of each pod that waits why, and wakes when it is time."""
    for rank, moment in draft.postponed.items():
        draft.wake(moment)
        pod = draft.children.pods[rank]
        code = exit_code(pod, draft.job.kind.container)
        how = "failed" if code is None else f"failed with exit code {code}"
        draft.notice(
            "RestartBackOff",
            f"Pod {pod.name} {how} soon after its start, and not for the first time: "
            f"it is replaced at {format_time(moment)}",
        )


def _rounds(draft: Draft, rank: Rank) -> int:
    """How often a rank of this role was restarted so far, on the average; as a group, how often the group was."""
    counted = draft.status.get("restarts") or {}
    if draft.group_restart:
        return int(sum(counted.values()))
    return int(counted.get(rank.role, 0)) // draft.replicas[rank.role].count
