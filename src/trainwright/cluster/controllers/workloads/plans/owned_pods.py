"""Which pods an owner has: those it controls, and orphans that its selector matches."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.selectors import LabelSelector, read_label_selector
from trainwright.objects.times import parse_time


@dataclass(frozen=True, slots=True)
class Claim:
    """`owned` includes the pods to adopt and not those to release."""

    owned: tuple[Pod, ...]
    adopted: tuple[Pod, ...]
    released: tuple[Pod, ...]


def claim_pods(owner: Object, pods: Iterable[Pod]) -> Claim:
    """An owner that is being deleted neither adopts nor releases."""
    uid, deleted = owner["metadata"]["uid"], "deletionTimestamp" in owner["metadata"]
    selector = selector_of(owner)
    owned, adopted, released = [], [], []
    for pod in pods:
        controller, matches = pod.metadata.controller, selector.matches(pod.metadata.labels)
        if controller is not None and controller.uid == uid:
            if matches:
                owned.append(pod)
            elif not deleted:
                released.append(pod)
        elif controller is None and matches and not deleted and not pod.metadata.terminating:
            adopted.append(pod)
    return Claim((*owned, *adopted), tuple(adopted), tuple(released))


def selector_of(owner: Object) -> LabelSelector:
    return read_label_selector(owner["spec"].get("selector") or {})


def is_active(pod: Pod) -> bool:
    return not pod.finished and not pod.metadata.terminating


def available_at(pod: Pod, min_ready_seconds: int) -> datetime | None:
    """When a ready pod counts as available; None if it is not ready."""
    condition = pod.status.condition("Ready")
    if condition is None or condition.status != "True" or not condition.last_transition_time:
        return None
    return parse_time(condition.last_transition_time) + timedelta(seconds=min_ready_seconds)


def is_available(owner: Object, pod: Pod, now: datetime) -> bool:
    """Whether the pod has been ready for the `minReadySeconds` of its owner."""
    seconds = owner["spec"].get("minReadySeconds", 0)
    if not seconds:
        return pod.ready
    moment = available_at(pod, seconds)
    return moment is not None and moment <= now


def next_availability_check(owner: Object, pods: Sequence[Pod], now: datetime) -> float | None:
    """Seconds until the next ready pod becomes available; None if no time has to pass."""
    seconds = owner["spec"].get("minReadySeconds", 0)
    times = [available_at(pod, seconds) for pod in pods if is_active(pod)]
    waiting = [(moment - now).total_seconds() for moment in times if moment is not None and moment > now]
    return min(waiting, default=None)
