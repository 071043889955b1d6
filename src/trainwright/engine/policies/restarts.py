"""Failed pods are replaced or fail the job, as their role's restart policy says. Replacements are counted.

Where the job or the operator asks for it, a pod is never replaced alone: a collective cannot be rejoined by one rank,
so all pods go, and the first new one comes when the last old one is gone. Such a restart of the whole group counts
once, however many of its pods failed. It is under way as long as `status.replacedPods` names anybody.
"""

from trainwright.engine.conditions import FAILED, RESTARTING
from trainwright.engine.draft import Draft
from trainwright.engine.plan import Transition
from trainwright.engine.pod_outcome import End, end_of, exit_code, is_active, is_disrupted
from trainwright.engine.policies import backoff
from trainwright.engine.ranks import Rank
from trainwright.objects.pods import Pod

_SIGNALS = 128
"""Exit codes from here on mean that a signal ended the program; the policy ExitCode tries again after those."""


def strike_off_the_gone(draft: Draft) -> None:
    """Forgets replaced pods that are gone; of a group that restarts nobody is forgotten before all are gone."""
    if not draft.group_restart:
        draft.replaced &= {pod.metadata.uid for pod in draft.children.all_pods}
    elif draft.replaced and not draft.children.all_pods and not draft.children.of_pods.orphans:
        draft.replaced.clear()
        draft.complete({})  # the new group starts with all its ranks


def postpone(draft: Draft) -> None:
    """Decides who of the failed has to wait: nobody to whom the cluster did it; of a group that restarts as one nobody,
    or all."""
    moments = {
        rank: moment
        for rank, pod in draft.failures.items()
        if is_replaceable(draft, rank, pod)
        and not is_disrupted(pod)
        and (moment := backoff.not_before(draft, rank, pod))
    }
    if not draft.group_restart or (len(moments) == len(draft.failures) and not draft.taken_away):
        draft.postponed = moments


def restarts(draft: Draft) -> int:
    """What counts against backoffLimit: restarts of pods that were replaced, replacements that are due, and restarts
    by the kubelet of pods that live."""
    counted = sum((draft.status.get("restarts") or {}).values())
    due = sum(_due(draft, draft.failures).values())
    return int(counted) + due + sum(_restarts_of_the_living(draft).values())


def is_excused(draft: Draft, pod: Pod) -> bool:
    """What the cluster did to a pod is not its fault; nor is it, in a group that restarts as one, when a peer was taken
    from it at the same time."""
    return is_disrupted(pod) or (draft.group_restart and draft.lost_a_member)


def replace_failed(draft: Draft, *, stranded: frozenset[str]) -> None:
    """`stranded`: the uids of pods that are removed because their node is gone."""
    for rank, pod in draft.failures.items():
        if draft.replicas[rank.role].restart_policy == "ExitCode" and not is_replaceable(draft, rank, pod):
            message = f'job "{draft.job.name}" is failing because "{rank.role}" replica(s) failed.'
            draft.finish(FAILED, message=message, event="Warning")
            return
    if draft.group_restart:
        _restart_group(draft, stranded)
    else:
        _replace_one_by_one(draft)
    backoff.report(draft)


def is_replaceable(draft: Draft, rank: Rank, pod: Pod) -> bool:
    match draft.replicas[rank.role].restart_policy:
        case "OnFailure" | "Always":
            return True
        case "ExitCode":
            code = exit_code(pod, draft.job.kind.container)
            return code is None or code >= _SIGNALS or is_disrupted(pod)
        case _:
            return False


def _replace_one_by_one(draft: Draft) -> None:
    replaced = {
        rank: pod
        for rank, pod in draft.failures.items()
        if is_replaceable(draft, rank, pod) and rank not in draft.postponed
    }
    _account(draft, _due(draft, replaced), replaced)
    for rank in replaced:
        draft.transition(Transition.RESTARTED)
        message = f"job {draft.job.name} is restarting because {rank.role} replica(s) failed."
        draft.set_condition(RESTARTING, word="Restarting", message=message)
        draft.tell("Warning", draft.reason("Restarting"), message)


def _restart_group(draft: Draft, stranded: frozenset[str]) -> None:
    if draft.group_goes or any(not is_replaceable(draft, rank, pod) for rank, pod in draft.failures.items()):
        return
    lost = {rank: pod for rank, pod in draft.children.pods.items() if pod.metadata.uid in stranded}
    leaving = {**draft.failures, **draft.taken_away, **lost}
    if not leaving or (draft.postponed and not lost):
        return
    draft.postponed = {}
    costs = _due(draft, draft.failures)
    for role, kubelets in _restarts_of_the_living(draft).items():
        costs[role] = costs.get(role, 0) + kubelets
    _account(draft, costs, leaving)
    draft.transition(Transition.RESTARTED)
    culprit = next(iter(leaving.values()))
    fate = "failed" if end_of(culprit) is End.FAILED else "was taken away"
    message = f"job {draft.job.name} is restarting all its replicas because {culprit.name} {fate}."
    draft.set_condition(RESTARTING, word="Restarting", message=message)
    draft.tell("Warning", draft.reason("Restarting"), message)


def _account(draft: Draft, costs: dict[str, int], replaced: dict[Rank, Pod]) -> None:
    """Writes down who was counted, before anything is deleted: so no failure is ever counted twice."""
    counted = dict(draft.status.get("restarts") or {})
    for role, cost in costs.items():
        counted[role] = counted.get(role, 0) + cost
    draft.put("restarts", {role: count for role, count in counted.items() if count})
    draft.replaced |= {pod.metadata.uid for pod in replaced.values()}


def _due(draft: Draft, failures: dict[Rank, Pod]) -> dict[str, int]:
    """By role, what the replacement of pods that have failed costs: each what the kubelet did to keep it alive,
    and one for the pod itself, or one for the group."""
    costs: dict[str, int] = {}
    charged = False
    for rank, pod in failures.items():
        if is_replaceable(draft, rank, pod):
            blamed = not is_excused(draft, pod) and not (draft.group_restart and charged)
            charged = charged or blamed
            costs[rank.role] = costs.get(rank.role, 0) + pod.restarts + int(blamed)
    return costs


def _restarts_of_the_living(draft: Draft) -> dict[str, int]:
    """By role, restarts by the kubelet. Where it shall not restart anything there is nothing to count."""
    costs: dict[str, int] = {}
    if draft.group_goes:
        return costs
    for rank, pod in draft.children.pods.items():
        if is_active(pod) and not draft.is_replaced(pod) and draft.replicas[rank.role].restart_policy != "Never":
            costs[rank.role] = costs.get(rank.role, 0) + pod.restarts
    return costs
