"""The limits of a job: backoffLimit and activeDeadlineSeconds."""

from trainwright.engine.derived_facts import Facts
from trainwright.engine.plan_builder import PlanBuilder
from trainwright.engine.policies.pod_replacement import restart_count
from trainwright.engine.policies.retryable_failures import is_excused
from trainwright.engine.texts import Text
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.times import seconds_after


def reached(facts: Facts, builder: PlanBuilder) -> Text | None:
    """The text for the limit that the job has reached; None if it has reached none."""
    if _past_backoff_limit(facts):
        return facts.texts.backoff_limit
    if _past_deadline(facts, builder):
        return facts.texts.deadline
    return None


def _past_backoff_limit(facts: Facts) -> bool:
    limit = facts.job.run_policy.backoff_limit
    if limit is None:
        return False
    if limit <= 0 and any(_counts(facts, rank.role, pod) for rank, pod in facts.pods.failed.items()):
        return True
    return restart_count(facts) >= max(limit, 1)


def _counts(facts: Facts, role: str, pod: Pod) -> bool:
    """With backoffLimit 0 the first failure fails the job. A disruption counts only under the policy Never."""
    return facts.job.replicas[role].restart_policy == "Never" or not is_excused(facts, pod)


def _past_deadline(facts: Facts, builder: PlanBuilder) -> bool:
    seconds, start = facts.job.run_policy.active_deadline_seconds, builder.status.get("startTime")
    if seconds is None or start is None:
        return False
    end = seconds_after(start, seconds)
    if end is None:
        return False
    if facts.now < end:
        builder.requeue_at(end)
    return facts.now >= end
