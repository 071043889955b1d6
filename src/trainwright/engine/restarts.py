"""Failed pods are replaced or fail the job, as their role's restart policy says. Replacements are counted."""

from trainwright.engine.conditions import FAILED, RESTARTING, is_finished
from trainwright.engine.draft import Draft
from trainwright.engine.ends import exit_code, is_disrupted
from trainwright.engine.ranks import Rank
from trainwright.objects.pods import Pod

_SIGNALS = 128
"""Exit codes from here on mean that a signal ended the program; the policy ExitCode tries again after those."""


def is_replaceable(draft: Draft, rank: Rank, pod: Pod) -> bool:
    match draft.replicas[rank.role].restart_policy:
        case "OnFailure" | "Always":
            return True
        case "ExitCode":
            code = exit_code(pod, draft.job.kind.container)
            return code is None or code >= _SIGNALS
        case _:
            return False


def cost(pod: Pod) -> int:
    """How much the replacement of this pod takes from backoffLimit; what the cluster did to it is not its fault."""
    return pod.restarts + (0 if is_disrupted(pod) else 1)


def replace_failed(draft: Draft) -> None:
    if is_finished(draft.status):
        return
    replaced: dict[Rank, Pod] = {}
    for rank, pod in draft.failures.items():
        if is_replaceable(draft, rank, pod):
            replaced[rank] = pod
        elif draft.replicas[rank.role].restart_policy == "ExitCode":
            message = f'job "{draft.job.name}" is failing because "{rank.role}" replica(s) failed.'
            draft.finish(FAILED, message=message, event="Warning")
            return
    _account(draft, replaced)
    for rank in replaced:
        message = f"job {draft.job.name} is restarting because {rank.role} replica(s) failed."
        draft.set_condition(RESTARTING, word="Restarting", message=message)
        draft.tell("Warning", draft.reason("Restarting"), message)


def _account(draft: Draft, replaced: dict[Rank, Pod]) -> None:
    """Writes down who was counted, before anything is deleted: so no failure is ever counted twice."""
    restarts = dict(draft.status.get("restarts") or {})
    for rank, pod in replaced.items():
        restarts[rank.role] = restarts.get(rank.role, 0) + cost(pod)
    draft.put("restarts", {role: count for role, count in restarts.items() if count})
    draft.replaced |= {pod.metadata.uid for pod in replaced.values()}
