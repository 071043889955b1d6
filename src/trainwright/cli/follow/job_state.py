"""The state of one job that is being followed: its pods, their logs, progress, warnings and failures. No I/O."""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trainwright.api.job import Job
from trainwright.api.labels import REPLICA_INDEX, REPLICA_TYPE
from trainwright.api.types import DEFAULT_CLEAN_POD_POLICY
from trainwright.cli.manifests.apply import finished_condition
from trainwright.insight.failure import Failure, failures_of, first_failure
from trainwright.insight.progress import Progress, advance, planned_epochs, read_line
from trainwright.objects import Object
from trainwright.objects.paths import value_at
from trainwright.objects.pods import Pod, Waiting, read_pod

_PERMANENT_REASONS = frozenset({"ImageHasNoCommand", "InvalidImageName", "UnsupportedVolume"})
"""Reasons of a waiting container that only a change of the manifest resolves."""
_NORMAL_REASONS = frozenset({"", "ContainerCreating", "PodInitializing"})
_TRANSIENT_REASONS = frozenset({"FailedScheduling", "Unschedulable"})
"""Reasons of warnings that are normal for a moment, while volumes are bound; they are shown only if they last."""
_TRANSIENT_SECONDS = 3.0
_MANY_PODS = 8
_KEPT_LINES = 200


@dataclass(slots=True)
class _TrackedPod:
    """A pod that the job has or had."""

    label: str
    order: tuple[int, int]
    pod: Pod
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class _Warning:
    uid: str
    reason: str
    message: str
    at: float


class JobState:
    """Updated by `update_*`, `remove_pod` and `add_*`; `python` is the cluster's default Python for pods."""

    def __init__(self, job: Job, uid: str, *, python: str = "") -> None:
        self.kind = job.kind
        self.name = job.name
        self.namespace = job.namespace
        self.uid = uid
        self.object: Object = job.raw
        self._python = python
        self.deleted = False
        self.labels = [f"{role.label}-{index}" for role in job.kind.roles for index in range(_count(job, role.name))]
        self.progress = Progress(epochs=planned_epochs(_command(job)))
        self._progress_order: tuple[int, int] | None = None
        self._pods: dict[str, _TrackedPod] = {}
        self._failures: dict[tuple[str, str, str], Failure] = {}
        self._warnings: dict[str, _Warning] = {}
        self._shown_warnings: set[str] = set()

    # Updates

    def update_job(self, job: Object | None) -> None:
        """None or a job with another uid means that this job was deleted."""
        if job is None or job["metadata"]["uid"] != self.uid:
            self.deleted = True
        else:
            self.object = job

    def update_pod(self, obj: Object) -> None:
        pod = read_pod(obj)
        owner = pod.metadata.controller
        if owner is None or owner.uid != self.uid:
            return
        tracked = self._pods.setdefault(pod.metadata.uid, _TrackedPod(self.label(pod), self._order(pod), pod))
        tracked.pod = pod
        for failure in failures_of(pod, tracked.label, ()):
            self._failures.setdefault((pod.metadata.uid, failure.container, failure.finished_at), failure)

    def remove_pod(self, uid: str) -> None:
        if tracked := self._pods.get(uid):
            tracked.deleted = True

    def add_warning(self, event: Object, at: float) -> None:
        """A Warning event about any object; it is shown if the object is this job or one of its pods."""
        uid = str(value_at(event, "involvedObject", "uid", default=""))
        key = str(event["metadata"].get("uid") or event["metadata"].get("name"))
        self._warnings[key] = _Warning(uid, str(event.get("reason", "")), str(event.get("message", "")), at)

    def add_log_line(self, pod_uid: str, line: str, at: float) -> None:
        """A line of a pod's log. Progress is read from the first rank that prints any."""
        tracked = self._pods.get(pod_uid)
        if tracked is None:
            return
        tracked.lines.append(line)
        reading = read_line(line)
        if reading is None:
            return
        if self._progress_order is None or tracked.order <= self._progress_order:
            self._progress_order = tracked.order
            self.progress = advance(self.progress, reading, at)

    # Queries

    @property
    def outcome(self) -> str | None:
        """`Succeeded`, `Failed`, `Deleted` or `Stuck`; None while the job may still make progress."""
        if finished := finished_condition(self.object):
            return finished
        if self.deleted:
            return "Deleted"
        return "Stuck" if self.stuck else None

    @property
    def stuck(self) -> tuple[str, Waiting] | None:
        """The first rank that cannot start without a change of the manifest, and why."""
        for tracked in self._present():
            waiting = _waiting(tracked.pod)
            if waiting and waiting.reason in _PERMANENT_REASONS:
                return tracked.label, waiting
        return None

    def phases(self) -> str:
        """`master-0 Running  worker-0 Pending`; counted by role if there are many."""
        present = self._present()
        if not present and self._suspended:
            return "suspended; set spec.runPolicy.suspend to false to resume it"
        if len(present) <= _MANY_PODS:
            return "  ".join(f"{tracked.label} {pod_state(tracked.pod)}" for tracked in present)
        counts: dict[str, Counter[str]] = {}
        for tracked in present:
            counts.setdefault(tracked.label.rpartition("-")[0], Counter())[pod_state(tracked.pod)] += 1
        return "  ".join(
            f"{role} " + ", ".join(f"{number} {state}" for state, number in sorted(counter.items()))
            for role, counter in counts.items()
        )

    def new_warnings(self, at: float, *, with_job_name: bool = False) -> list[str]:
        """Warnings about the job or its pods that have not been returned yet; equal messages only once.

        `with_job_name` adds the job's name to the labels of pods, for when several jobs are followed.
        """
        job = f"{self.name}/" if with_job_name else ""
        names = {self.uid: self.name, **{uid: f"{job}{tracked.label}" for uid, tracked in self._pods.items()}}
        fresh = []
        # Pods first, because the events of a job repeat those of its pods.
        for key, warning in sorted(self._warnings.items(), key=lambda item: item[1].uid == self.uid):
            transient = warning.reason in _TRANSIENT_REASONS
            if warning.uid not in names or (transient and at - warning.at < _TRANSIENT_SECONDS):
                continue
            del self._warnings[key]
            if transient and all(tracked.pod.spec.node_name for tracked in self._present()):
                continue  # all pods have been scheduled since
            if not self._was_shown(warning):
                self._shown_warnings.add(warning.message or warning.reason)
                fresh.append(f"{names[warning.uid]}: {warning.reason}: {warning.message}")
        return fresh

    def _was_shown(self, warning: _Warning) -> bool:
        """True if the message was shown, also as part of another: a job's `Error pod … waiting message: X` quotes X."""
        new = warning.message or warning.reason
        return any(new == old or new.endswith(f": {old}") or old.endswith(f": {new}") for old in self._shown_warnings)

    def first_failure(self) -> Failure | None:
        with_lines = [
            replace(failure, last_lines=tuple(self._pods[uid].lines), python=failure.python or self._python)
            for (uid, _, _), failure in self._failures.items()
        ]
        return first_failure(with_lines)

    def pods(self) -> list[tuple[str, Pod]]:
        """The job's existing pods with their labels, by rank."""
        return [(tracked.label, tracked.pod) for tracked in self._present()]

    def leftover_pods(self) -> list[str]:
        """The ranks that keep running after the end of the job, because its cleanPodPolicy is None."""
        policy = self._run_policy.get("cleanPodPolicy") or self.object["spec"].get("cleanPodPolicy")
        if (policy or DEFAULT_CLEAN_POD_POLICY) != "None":
            return []
        return [label for label, pod in self.pods() if pod.phase == "Running" and not pod.metadata.terminating]

    def label(self, pod: Pod) -> str:
        """`worker-0`"""
        labels = pod.metadata.labels
        if REPLICA_TYPE in labels and REPLICA_INDEX in labels:
            return f"{labels[REPLICA_TYPE]}-{labels[REPLICA_INDEX]}"
        return pod.name.removeprefix(f"{self.name}-")

    @property
    def _run_policy(self) -> Object:
        policy: Object = self.object["spec"].get("runPolicy") or {}
        return policy

    @property
    def _suspended(self) -> bool:
        return bool(self._run_policy.get("suspend")) and self.outcome is None

    def _present(self) -> list[_TrackedPod]:
        return sorted((one for one in self._pods.values() if not one.deleted), key=lambda one: one.order)

    def _order(self, pod: Pod) -> tuple[int, int]:
        roles = [role.label for role in self.kind.roles]
        role, index = (pod.metadata.labels.get(key, "") for key in (REPLICA_TYPE, REPLICA_INDEX))
        return roles.index(role) if role in roles else len(roles), int(index) if index.isdecimal() else 0


def pod_state(pod: Pod) -> str:
    """The pod's phase, or a more specific word, like the STATUS of `kubectl get pods`."""
    if pod.metadata.terminating:
        return "Terminating"
    waiting = _waiting(pod)
    if waiting and waiting.reason not in _NORMAL_REASONS:
        return waiting.reason
    if pod.phase == "Failed" and pod.status.reason:
        return pod.status.reason
    if pod.phase == "Pending":
        return _pending(pod)
    restarts = sum(status.restart_count for status in pod.status.container_statuses)
    return f"{pod.phase} (restart {restarts})" if restarts and pod.phase == "Running" else pod.phase


def _pending(pod: Pod) -> str:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason:
            return condition.reason
    if any(status.state.running for status in pod.status.init_container_statuses):
        return "Init"
    return "Pending"


def _waiting(pod: Pod) -> Waiting | None:
    statuses = pod.status.init_container_statuses + pod.status.container_statuses
    return next((status.state.waiting for status in statuses if status.state.waiting), None)


def _count(job: Job, role: str) -> int:
    replica = job.replicas.get(role)
    return replica.count if replica else 0


def _command(job: Job) -> Sequence[str]:
    """Command and arguments of the first role's training container, which may set the number of epochs."""
    for replica in job.replicas.values():
        for container in value_at(replica.template, "spec", "containers", default=()):
            if container.get("name") == replica.container:
                return [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
    return []
