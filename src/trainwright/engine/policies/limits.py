"""When a job has failed often enough, or was active for long enough: backoffLimit and activeDeadlineSeconds."""

from trainwright.engine.draft import Draft
from trainwright.engine.moments import after
from trainwright.engine.policies.restarts import is_excused, restarts
from trainwright.objects.pods import Pod


def reached(draft: Draft) -> str:
    """Why the job fails now unless it has succeeded; empty if no limit is reached."""
    name = draft.job.name
    if _past_backoff_limit(draft):
        return f"Job {name} has failed because it has reached the specified backoff limit"
    if _past_deadline(draft):
        return f"Job {name} has failed because it was active longer than specified deadline"
    return ""


def _past_backoff_limit(draft: Draft) -> bool:
    limit = draft.job.run_policy.backoff_limit
    if limit is None:
        return False
    if limit <= 0 and any(_counts_at_once(draft, rank.role, pod) for rank, pod in draft.failures.items()):
        return True
    return restarts(draft) >= max(limit, 1)


def _counts_at_once(draft: Draft, role: str, pod: Pod) -> bool:
    """With no restart to spare the first failure decides, under whatever policy."""
    return draft.replicas[role].restart_policy == "Never" or not is_excused(draft, pod)


def _past_deadline(draft: Draft) -> bool:
    seconds, start = draft.job.run_policy.active_deadline_seconds, draft.status.get("startTime")
    if seconds is None or start is None:
        return False
    end = after(start, seconds)
    if end is None:
        return False
    if draft.now < end:
        draft.wake(end)
    return draft.now >= end
