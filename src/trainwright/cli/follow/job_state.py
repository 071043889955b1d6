"""What is known about one job that is being followed: its pods, what they printed, what went wrong.

It is told what was seen and answers what to show. It does no I/O, so that every telling can be tested as values.
"""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from trainwright.api.job import Job
from trainwright.api.labels import REPLICA_INDEX, REPLICA_TYPE
from trainwright.cli.manifests.apply import end_of
from trainwright.insight.failure import Ended, failures_of, first_failure
from trainwright.insight.progress import Progress, advance, planned_epochs, read_line
from trainwright.objects import Object
from trainwright.objects.paths import value_at
from trainwright.objects.pods import Pod, Waiting, read_pod

_HOPELESS = frozenset({"ImageHasNoCommand", "InvalidImageName", "UnsupportedVolume"})
"""Reasons for which a container waits that no waiting mends: the manifest has to change."""
_UNREMARKABLE = frozenset({"", "ContainerCreating", "PodInitializing"})
_PASSING = frozenset({"FailedScheduling", "Unschedulable"})
"""What is usual for a moment, while volumes are being bound, and only worth a word if it lasts."""
_PATIENCE_SECONDS = 3.0
_MANY_PODS = 8
_KEPT_LINES = 200


@dataclass(slots=True)
class _Member:
    """One pod that the job has or had."""

    label: str
    order: tuple[int, int]
    pod: Pod
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))
    gone: bool = False


@dataclass(frozen=True, slots=True)
class _Warning:
    about: str
    reason: str
    message: str
    at: float


class JobStory:
    """Fed by `see_*` and `hear`; everything else only looks. `python` is that of pods that name none."""

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
        self._members: dict[str, _Member] = {}
        self._ends: dict[tuple[str, str, str], Ended] = {}
        self._warnings: dict[str, _Warning] = {}
        self._said_warnings: set[str] = set()

    # What was seen

    def see_job(self, job: Object | None) -> None:
        """None, or a job with another uid: ours has been deleted."""
        if job is None or job["metadata"]["uid"] != self.uid:
            self.deleted = True
        else:
            self.object = job

    def see_pod(self, obj: Object) -> None:
        pod = read_pod(obj)
        owner = pod.metadata.controller
        if owner is None or owner.uid != self.uid:
            return
        member = self._members.setdefault(pod.metadata.uid, _Member(self.label(pod), self._order(pod), pod))
        member.pod = pod
        for end in failures_of(pod, member.label, ()):
            self._ends.setdefault((pod.metadata.uid, end.container, end.finished_at), end)

    def lose_pod(self, uid: str) -> None:
        if member := self._members.get(uid):
            member.gone = True

    def see_warning(self, event: Object, at: float) -> None:
        """A Warning event of anything; it is shown once it turns out to be about this job."""
        about = str(value_at(event, "involvedObject", "uid", default=""))
        key = str(event["metadata"].get("uid") or event["metadata"].get("name"))
        self._warnings[key] = _Warning(about, str(event.get("reason", "")), str(event.get("message", "")), at)

    def hear(self, pod_uid: str, line: str, at: float) -> None:
        """A line of a pod's output. Progress is that of the first rank that tells any."""
        member = self._members.get(pod_uid)
        if member is None:
            return
        member.lines.append(line)
        reading = read_line(line)
        if reading is None:
            return
        if self._progress_order is None or member.order <= self._progress_order:
            self._progress_order = member.order
            self.progress = advance(self.progress, reading, at)

    # What to show

    @property
    def outcome(self) -> str | None:
        """`Succeeded`, `Failed`, `Deleted` or `Stuck` once there is nothing left to wait for."""
        if end := end_of(self.object):
            return end
        if self.deleted:
            return "Deleted"
        return "Stuck" if self.stuck else None

    @property
    def stuck(self) -> tuple[str, Waiting] | None:
        """The rank that waits for something that never comes, and what its node says about it."""
        for member in self._present():
            waiting = _waiting(member.pod)
            if waiting and waiting.reason in _HOPELESS:
                return member.label, waiting
        return None

    def phases(self) -> str:
        """`master-0 Running  worker-0 Pending`; counted by role if there are many."""
        members = self._present()
        if not members and self._suspended:
            return "suspended, until its spec.runPolicy.suspend is set to false"
        if len(members) <= _MANY_PODS:
            return "  ".join(f"{member.label} {phase_of(member.pod)}" for member in members)
        counts: dict[str, Counter[str]] = {}
        for member in members:
            counts.setdefault(member.label.rpartition("-")[0], Counter())[phase_of(member.pod)] += 1
        return "  ".join(
            f"{role} " + ", ".join(f"{number} {phase}" for phase, number in sorted(counter.items()))
            for role, counter in counts.items()
        )

    def new_warnings(self, at: float, *, among_others: bool = False) -> list[str]:
        """Warnings about the job or its pods that have not been shown; the same words of several only once.

        `among_others`: other jobs are followed as well, so that a rank's name alone does not say whose it is.
        """
        job = f"{self.name}/" if among_others else ""
        known = {self.uid: self.name, **{uid: f"{job}{member.label}" for uid, member in self._members.items()}}
        fresh = []
        # Pods first: what the job says about its pods only repeats them.
        for key, warning in sorted(self._warnings.items(), key=lambda item: item[1].about == self.uid):
            if warning.about not in known or (warning.reason in _PASSING and at - warning.at < _PATIENCE_SECONDS):
                continue
            del self._warnings[key]
            if warning.reason in _PASSING and all(member.pod.spec.node_name for member in self._present()):
                continue  # it has passed
            if not self._repeats(warning):
                self._said_warnings.add(warning.message or warning.reason)
                fresh.append(f"{known[warning.about]}: {warning.reason}: {warning.message}")
        return fresh

    def _repeats(self, warning: _Warning) -> bool:
        """Whether it says what has been shown, as a job's `Error pod … waiting message: X` says its pod's `X`."""
        new = warning.message or warning.reason
        return any(new == old or new.endswith(f": {old}") or old.endswith(f": {new}") for old in self._said_warnings)

    def first_failure(self) -> Ended | None:
        with_lines = [
            replace(end, last_lines=tuple(self._members[uid].lines), python=end.python or self._python)
            for (uid, _, _), end in self._ends.items()
        ]
        return first_failure(with_lines)

    def pods(self) -> list[tuple[str, Pod]]:
        """The job's pods that exist, by rank, with their labels."""
        return [(member.label, member.pod) for member in self._present()]

    def survivors(self) -> list[str]:
        """The ranks that run on although the job is over, and that nobody is going to end."""
        if (self._run_policy.get("cleanPodPolicy") or "None") != "None":
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

    def _present(self) -> list[_Member]:
        return sorted((one for one in self._members.values() if not one.gone), key=lambda one: one.order)

    def _order(self, pod: Pod) -> tuple[int, int]:
        roles = [role.label for role in self.kind.roles]
        role, index = (pod.metadata.labels.get(key, "") for key in (REPLICA_TYPE, REPLICA_INDEX))
        return roles.index(role) if role in roles else len(roles), int(index) if index.isdecimal() else 0


def phase_of(pod: Pod) -> str:
    """One word for how far a pod is, more telling than its phase where it can be."""
    if pod.metadata.terminating:
        return "Terminating"
    waiting = _waiting(pod)
    if waiting and waiting.reason not in _UNREMARKABLE:
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
    """The words of the deciding role's training container, where the number of epochs may stand."""
    for replica in job.replicas.values():
        for container in value_at(replica.template, "spec", "containers", default=()):
            if container.get("name") == job.kind.container:
                return [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
    return []
