"""What the pods of a Job show: completion indexes, failures, when a pod finished, the back-off, the failure policy."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainwright.objects import Object
from trainwright.objects.decimals import parse_decimal
from trainwright.objects.kinds.pods import ContainerStatus, Pod
from trainwright.objects.times import parse_time

FINALIZER = "batch.kubernetes.io/job-tracking"
INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED_INDEX_FAILURES = "batch.kubernetes.io/job-index-ignored-failure-count"

_FIRST_BACKOFF, _LONGEST_BACKOFF = 10.0, 600.0


def is_indexed(job: Object) -> bool:
    return bool(job["spec"].get("completionMode") == "Indexed")


def is_tracked(pod: Pod) -> bool:
    return FINALIZER in pod.metadata.finalizers


def replaces_failed_only(job: Object) -> bool:
    """True if a pod is replaced when it has ended, not when its deletion begins."""
    return bool(job["spec"].get("podReplacementPolicy") == "Failed")


def has_failed(pod: Pod, job: Object) -> bool:
    """A pod that is being deleted may never reach the phase Failed, so it counts as failed."""
    if pod.phase == "Failed":
        return True
    return pod.metadata.terminating and pod.phase != "Succeeded" and not replaces_failed_only(job)


def completion_index(pod: Pod) -> int | None:
    return parse_decimal(pod.metadata.annotations.get(INDEX, ""))


def annotated_count(pod: Pod, annotation: str) -> int:
    return parse_decimal(pod.metadata.annotations.get(annotation, "")) or 0


def read_indexes(text: str, completions: int) -> set[int]:
    """`0,2-5` as a set. Malformed parts are ignored."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        start, end = parse_decimal(first), parse_decimal(last or first)
        if start is not None and end is not None:
            found.update(range(start, min(end, completions - 1) + 1))
    return found


def format_indexes(indexes: Iterable[int]) -> str:
    """`0,2-5`; two neighbours are written as `0,1`."""
    parts: list[str] = []
    ordered = sorted(indexes)
    start = 0
    while start < len(ordered):
        end = start
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        first, last = ordered[start], ordered[end]
        parts += (
            [str(first)] if first == last else [str(first), str(last)] if last == first + 1 else [f"{first}-{last}"]
        )
        start = end + 1
    return ",".join(parts)


def finished_at(pod: Pod) -> datetime:
    """When the pod ended, by its containers, else by its conditions, else when its deletion began."""
    ended = [
        status.state.terminated.finished_at if status.state.terminated is not None else None
        for status in pod.status.container_statuses
    ]
    if ended and all(ended):
        return max(parse_time(moment) for moment in ended if moment)
    condition = pod.status.condition("Ready")
    if condition is not None and condition.status == "False" and condition.last_transition_time:
        return parse_time(condition.last_transition_time)
    metadata = pod.metadata
    if metadata.deletion_timestamp is not None:
        return parse_time(metadata.deletion_timestamp) - timedelta(seconds=metadata.deletion_grace_period_seconds or 0)
    return parse_time(metadata.creation_timestamp or "1970-01-01T00:00:00Z")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Failures of pods since the last success."""

    failures: int = 0
    last: datetime | None = None

    def after(self, succeeded: Sequence[Pod], failed: Sequence[Pod]) -> "Backoff":
        """With pods that have finished since."""
        times = sorted(map(finished_at, failed))
        if not succeeded:
            return Backoff(self.failures + len(times), times[-1]) if times else self
        success = max(map(finished_at, succeeded))
        later = [moment for moment in times if moment > success]
        return Backoff(len(later), later[-1]) if later else Backoff()

    def remaining(self, now: datetime) -> float:
        """Seconds until the next pod may be created."""
        if not self.failures or self.last is None:
            return 0.0
        delay = min(_FIRST_BACKOFF * float(2 ** min(self.failures - 1, 10)), _LONGEST_BACKOFF)
        return max(delay - (now - self.last).total_seconds(), 0.0)


@dataclass(frozen=True, slots=True)
class PolicyMatch:
    """The action of the first rule of the podFailurePolicy that a failed pod matches."""

    action: str = ""
    message: str = ""

    @property
    def counts(self) -> bool:
        return self.action != "Ignore"


def match_failure_policy(job: Object, pod: Pod) -> PolicyMatch:
    for index, rule in enumerate((job["spec"].get("podFailurePolicy") or {}).get("rules") or ()):
        text = ""
        if rule.get("onExitCodes") is not None:
            status = _matching_container(pod, rule["onExitCodes"])
            if status is not None and status.state.terminated is not None:
                code = status.state.terminated.exit_code
                text = f"Container {status.name} for pod {_name(pod)} failed with exit code {code}"
        else:
            patterns = rule.get("onPodConditions") or ()
            wanted = {(pattern.get("type"), pattern.get("status")) for pattern in patterns}
            present = {condition.type: condition.status for condition in pod.status.conditions}
            met = next((type_ for type_, status in present.items() if (type_, status) in wanted), "")
            text = f"Pod {_name(pod)} has condition {met}" if met else ""
        if text:
            return PolicyMatch(rule["action"], f"{text} matching {rule['action']} rule at index {index}")
    return PolicyMatch()


def _matching_container(pod: Pod, requirement: Object) -> ContainerStatus | None:
    name, values = requirement.get("containerName"), requirement.get("values") or []
    for status in pod.status.container_statuses + pod.status.init_container_statuses:
        terminated = status.state.terminated
        if terminated is None or not terminated.exit_code or name not in {None, status.name}:
            continue
        if (terminated.exit_code in values) is (requirement.get("operator") == "In"):
            return status
    return None


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
