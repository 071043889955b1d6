"""The state of one job that is being followed: its pods, their output, progress, warnings and failures."""

import os
import stat
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainwright.api.annotations import RESTART_SCOPE
from trainwright.api.job import Job, read_job
from trainwright.api.labels import rank_of
from trainwright.api.types import DEFAULT_CLEAN_POD_POLICY
from trainwright.cli.follow.state.job_warnings import JobWarnings
from trainwright.cli.follow.state.loss_curve import LossCurve
from trainwright.cli.follow.state.rank_troubles import (
    LateRank,
    RankOutput,
    RepeatedFailure,
    Silence,
    find_silence,
    late_ranks,
    repeated_failure,
)
from trainwright.cli.jobs.pods.pod_states import (
    PERMANENT_REASONS,
    declared_ports,
    listening_ports,
    pod_state,
    waiting_reason,
)
from trainwright.cli.jobs.summary import finished_state
from trainwright.cli.pods_python import install_command
from trainwright.cli.targets import Target
from trainwright.cluster.facade import PodRecord, PrivateFile, processes_of
from trainwright.insight.first_failing_rank import Diagnosis
from trainwright.insight.job_diagnosis import diagnose_job
from trainwright.insight.log_exceptions import MAX_LINE
from trainwright.insight.log_progress import Progress, advance, epochs_in_source, planned_epochs, read_line
from trainwright.objects import Object
from trainwright.objects.kinds.container_runs import ContainerRun, Line, RunKey, runs_in_status
from trainwright.objects.kinds.pods import Pod, Waiting, read_pod
from trainwright.objects.node_annotations import DIRECTORY, PYTHON
from trainwright.objects.paths import value_at
from trainwright.objects.times import unix_seconds

_MANY_PODS = 8
_KEPT_LINES = 500
_KEPT_RUNS = 200
_MAX_LISTENERS = 20
_MAX_SOURCE = 1024 * 1024


@dataclass(slots=True)
class _TrackedPod:
    """A pod that the job has or had."""

    label: str
    order: tuple[int, int]
    pod: Pod
    declared_ports: frozenset[int] = frozenset()
    deleted: bool = False


class JobState:
    """Updated by `update_*`, `remove_pod` and `add_*`; `python` is the cluster's default Python for pods.

    Times are seconds since the epoch.
    """

    def __init__(self, job: Job, uid: str, *, python: str = "") -> None:
        self.kind = job.kind
        self.name = job.name
        self.namespace = job.namespace
        self.uid = uid
        self.object: Object = job.raw
        self._python = python
        self.deleted = False
        self.stopping = False
        """True if it was stopped while it was followed: it has ended once its pods have."""
        self.labels = [role.rank_name(index) for role in job.kind.roles for index in range(_count(job, role.name))]
        self._volumes = _volumes(job)
        self.main_containers = frozenset(replica.container for replica in job.replicas.values())
        self.command = tuple(_command(job))
        self.progress = Progress(epochs=planned_epochs(self.command))
        self.losses = LossCurve()
        self.outputs: dict[str, RankOutput] = {}
        self._progress_order: tuple[int, int] | None = None
        self._orders: dict[str, tuple[int, int]] = {}
        self._pods: dict[str, _TrackedPod] = {}
        self._records: dict[str, PodRecord] = {}
        self._runs: dict[RunKey, ContainerRun] = {}
        self._lines: dict[RunKey, deque[Line]] = {}
        self._warnings = JobWarnings(uid)
        self._shown_failures: set[str] = set()
        self._known_failures = 0
        self._shown_silence: frozenset[str] = frozenset()
        self._shown_late: set[str] = set()
        self._shown_listeners: set[tuple[str, int]] = set()

    # Updates

    def update_job(self, job: Object | None) -> None:
        """None or a job with another uid means that this job was deleted."""
        if job is None or job["metadata"]["uid"] != self.uid:
            self.deleted = True
            return
        suspended = self._suspend
        self.object = job
        if self._suspend != suspended:
            # Stopped or resumed, here or by another command. A job that is suspended from its beginning is not stopped.
            self.stopping = self._suspend

    def update_pod(self, obj: Object) -> Pod | None:
        """Returns the pod if it belongs to the job."""
        pod = read_pod(obj)
        owner = pod.metadata.controller
        if owner is None or owner.uid != self.uid:
            return None
        rank = rank_of(pod.metadata.labels, pod.name)
        if pod.metadata.uid not in self._pods:
            declared = frozenset(declared_ports(obj))
            self._pods[pod.metadata.uid] = _TrackedPod(rank, self._order(rank), pod, declared)
        tracked = self._pods[pod.metadata.uid]
        tracked.pod = pod
        if pod.metadata.uid not in self._records:
            self._runs.update({run.key: run for run in runs_in_status(pod, rank)})
        return pod

    def update_records(self, records: Iterable[PodRecord]) -> None:
        """What the embedded node has recorded about the job's pods; more exact than the status of the pods."""
        for record in records:
            if self._records.get(record.uid) != record:
                self._records[record.uid] = record
                rank = rank_of(record.labels, record.name)
                self._runs.update({run.key: replace(run, rank=rank) for run in record.runs})

    def remove_pod(self, uid: str) -> None:
        if tracked := self._pods.get(uid):
            tracked.deleted = True

    def add_warning(self, event: Object, at: float) -> None:
        """A Warning event about any object; it is shown if the object is this job or one of its pods."""
        self._warnings.add(event, at)

    def add_line(self, run: ContainerRun, line: str, at: float) -> None:
        """A finished line of a log. Progress is read from the first rank that prints any."""
        self._output(run.rank).add(at)
        lines = self._lines.get(run.key)
        if lines is None:
            lines = self._lines[run.key] = deque(maxlen=_KEPT_LINES)
            if len(self._lines) > _KEPT_RUNS:
                self._lines.pop(next(iter(self._lines)))
        lines.append(Line(line[:MAX_LINE], at))
        self._read_progress(run, line, at)

    def set_live(self, run: ContainerRun, text: str, at: float) -> None:
        """The text of an unfinished line; empty if there is none."""
        output = self._output(run.rank)
        if text and text != output.live:
            output.add(at, lines=0)
            self._read_progress(run, text, at)
        output.live = text

    def _read_progress(self, run: ContainerRun, line: str, at: float) -> None:
        order = self._order(run.rank)
        if run.init or (self._progress_order is not None and order > self._progress_order):
            return
        reading = read_line(line)
        if reading is None:
            return
        self._progress_order = order
        self.progress = advance(self.progress, reading, at)
        if "loss" in reading.metrics:
            self.losses.add(at, reading.metrics["loss"])

    # Queries

    @property
    def outcome(self) -> str | None:
        """`Succeeded`, `Failed`, `Deleted`, `Stopped` or `Stuck`; None while the job may still make progress."""
        if finished := finished_state(self.object):
            return finished
        if self.deleted:
            return "Deleted"
        if self.stopping and self._is_suspended:
            return "Stopped"
        return "Stuck" if self.stuck else None

    @property
    def stuck(self) -> tuple[str, Waiting] | None:
        """The first rank that cannot start without a change of the manifest, and why."""
        for tracked in self._present():
            waiting = waiting_reason(tracked.pod)
            if waiting and waiting.reason in PERMANENT_REASONS:
                return tracked.label, waiting
        return None

    @property
    def started_at(self) -> float | None:
        """When the first container started, or else when the job was created."""
        starts = [run.started_at for run in self._runs.values() if run.started_at]
        created = self.object["metadata"].get("creationTimestamp")
        return min(starts, default=None) or unix_seconds(created)

    @property
    def ended_at(self) -> float | None:
        """When the last container ended; None while the job may still make progress or a pod outlives it."""
        ends = [run.finished_at for run in self._runs.values() if run.finished_at]
        return max(ends) if self.outcome and ends and not self.leftover_pods() else None

    @property
    def has_started(self) -> bool:
        """True if a training container has started or anything was printed, also if nothing runs now."""
        started = any(run.started_at and not run.init for run in self._runs.values())
        return started or any(output.last is not None for output in self.outputs.values())

    def phases(self) -> str:
        """`master-0 Running  worker-0 Pending`; counted by role if there are many."""
        present = self._present()
        pods = [tracked.pod for tracked in present]
        if len(present) <= _MANY_PODS:
            return "  ".join(f"{tracked.label} {pod_state(tracked.pod, pods)}" for tracked in present)
        counts: dict[str, Counter[str]] = {}
        for tracked in present:
            role = tracked.label.rpartition("-")[0] or tracked.label
            counts.setdefault(role, Counter())[pod_state(tracked.pod, pods)] += 1
        return "  ".join(
            f"{role} " + ", ".join(f"{number} {state}" for state, number in sorted(counter.items()))
            for role, counter in counts.items()
        )

    @property
    def waits_for_resume(self) -> bool:
        """True if it is suspended, has no pods, and is followed until it is resumed."""
        return self._suspend and not self._present() and self.outcome is None

    def new_warnings(self, at: float, *, with_job_name: bool = False) -> list[str]:
        """Warnings about the job or its pods that have not been returned yet; equal messages only once.

        `with_job_name` adds the job's name to the labels of pods, for when several jobs are followed.
        """
        job = f"{self.name}/" if with_job_name else ""
        names = {self.uid: self.name, **{uid: f"{job}{tracked.label}" for uid, tracked in self._pods.items()}}
        scheduled = all(tracked.pod.spec.node_name for tracked in self._present())
        return self._warnings.new_events(names, at, all_scheduled=scheduled)

    def new_notes(self) -> list[str]:
        """What `new_warnings` found that is no reason to worry, each message once."""
        return self._warnings.new_notes()

    def new_listeners(self) -> list[tuple[str, str]]:
        """Ranks and the addresses at which their programs listen, each port of a rank once. Ports that a manifest
        declares are left out: every job has those by which its ranks meet."""
        found = []
        for tracked in self._present():
            for port in listening_ports(tracked.pod):
                key = tracked.label, port
                known = key in self._shown_listeners or len(self._shown_listeners) == _MAX_LISTENERS
                if port not in tracked.declared_ports and not known:
                    self._shown_listeners.add(key)
                    found.append((tracked.label, f"{tracked.pod.status.pod_ip}:{port}"))
        return found

    def new_waiting(self, now: float) -> list[tuple[str, Waiting]]:
        """Ranks whose containers wait for something that is missing, each message once."""
        return self._warnings.new_waiting(self.pods(), now)

    @property
    def has_failed_run(self) -> bool:
        return any(run.exit_code for run in self._runs.values())

    @property
    def awaits_first_failure(self) -> bool:
        """True if the job has failed and the rank that failed first may be one that has not ended yet."""
        found = self.diagnosis() if self.outcome == "Failed" else None
        return found is not None and not found.certain

    def diagnosis(self) -> Diagnosis | None:
        """Which rank failed first, and why; None if none has failed."""
        pods = [(tracked.label, tracked.pod) for tracked in self._pods.values()]
        return diagnose_job(self.object, self.runs(), pods)

    def runs(self) -> list[ContainerRun]:
        """All runs of the job's containers with their last lines, in the order of their ends."""
        runs = map(self._with_last_lines, self._runs.values())
        return sorted(runs, key=lambda run: run.finished_at or 0.0)

    def new_repeated_failures(self) -> list[RepeatedFailure]:
        """Ranks that fail the same way soon after each start and will be started again, each cause once."""
        failed = [run for run in self._runs.values() if run.exit_code]
        if len(failed) == self._known_failures:
            return []
        self._known_failures = len(failed)
        by_rank: dict[str, list[ContainerRun]] = {}
        for run in sorted(failed, key=lambda run: run.finished_at or 0.0):
            by_rank.setdefault(run.rank, []).append(self._with_last_lines(run))
        if self.outcome or not self._restarts_after([len(runs) for runs in by_rank.values()]):
            return []
        fresh = []
        for runs in by_rank.values():
            found = repeated_failure(runs)
            if found and found.diagnosis.summary not in self._shown_failures:
                self._shown_failures.add(found.diagnosis.summary)
                fresh.append(found)
        return fresh

    def _restarts_after(self, failures: Sequence[int]) -> bool:
        """True if backoffLimit leaves a restart after so many failures of the ranks; a group restart counts once."""
        limit = self.backoff_limit
        in_group = (self.object["metadata"].get("annotations") or {}).get(RESTART_SCOPE) == "group"
        counted = max(failures, default=0) if in_group else sum(failures)
        return limit is None or counted < max(limit, 1)

    def _with_last_lines(self, run: ContainerRun) -> ContainerRun:
        python = self._python_of(run.pod_uid)
        lines = tuple(self._lines.get(run.key, ()))
        return replace(run, lines=lines, python=python, installer=install_command(python))

    def _python_of(self, uid: str) -> str:
        tracked = self._pods.get(uid)
        of_pod = tracked.pod.metadata.annotations.get(PYTHON) if tracked else None
        of_job = (self.object["metadata"].get("annotations") or {}).get(PYTHON)
        return str(of_pod or of_job or self._python)

    def private_files(self) -> list[tuple[str, PrivateFile]]:
        """The files that only the job's pods can see, each with the name of its pod; not those in volumes that the
        operator adds. Reads the disk.

        Of a file that a pod and the one that replaced it have written, the last counts, which `cp` fetches too.
        """
        found = {
            (record.name, file.path): (record.name, file)
            for record in self._records.values()
            for file in record.private_files
            if not file.volume or file.volume in self._volumes
        }
        return list(found.values())

    def process_ids(self) -> set[int]:
        """The processes of the job's pods on this machine."""
        return {process.pid for found in processes_of(self._records.values()).values() for process in found}

    # Output

    def running_since(self) -> dict[str, float]:
        """The running ranks, and when their containers started."""
        started = {}
        for tracked in self._present():
            for status in tracked.pod.status.container_statuses:
                if status.state.running and not tracked.pod.metadata.terminating:
                    run = self._runs.get((tracked.pod.metadata.uid, status.name, status.restart_count))
                    if run is None or run.finished_at is None:  # else it has ended while the cluster was not running
                        exact = run.started_at if run else None
                        started[tracked.label] = exact or unix_seconds(status.state.running.started_at) or 0.0
        return started

    def new_late_ranks(self, now: float) -> list[LateRank]:
        """Ranks that wait for a peer that has succeeded, each once."""
        found = late_ranks(self.pods(), now) if self.outcome is None else []
        fresh = [late for late in found if late.rank not in self._shown_late]
        self._shown_late |= {late.rank for late in fresh}
        return fresh

    def new_silence(self, now: float) -> Silence | None:
        """Ranks that print nothing for longer than expected; each such silence once."""
        found = find_silence(self._outputs_of_running(), self.running_since(), now) if self.outcome is None else None
        ranks = frozenset(found.ranks) if found else frozenset()
        fresh = bool(ranks - self._shown_silence)
        self._shown_silence = ranks
        return found if fresh else None

    def silence(self, now: float) -> float | None:
        """Seconds since any running rank printed something; None if none runs."""
        started = self.running_since()
        silences = [
            output.silence(started[output.rank], now) for output in self._outputs_of_running() if output.rank in started
        ]
        return min(silences, default=None)

    def _outputs_of_running(self) -> list[RankOutput]:
        return [self.outputs.get(rank) or RankOutput(rank) for rank in self.running_since()]

    def pods(self) -> list[tuple[str, Pod]]:
        """The job's existing pods with their labels, by rank."""
        return [(tracked.label, tracked.pod) for tracked in self._present()]

    def leftover_pods(self) -> list[str]:
        """The ranks that keep running after the end of the job, because its cleanPodPolicy is None."""
        policy = self._run_policy.get("cleanPodPolicy") or self.object["spec"].get("cleanPodPolicy")
        if (policy or DEFAULT_CLEAN_POD_POLICY) != "None":
            return []
        return [
            tracked.label
            for tracked in self._present()
            if tracked.pod.phase == "Running"
            and not tracked.pod.metadata.terminating
            and not self._has_recorded_end(tracked.pod)
        ]

    def _has_recorded_end(self, pod: Pod) -> bool:
        """True if the node has recorded the end of the pod's containers, which its status may show a moment later."""
        record = self._records.get(pod.metadata.uid)
        runs = [run for run in record.runs if not run.init] if record else []
        return pod.spec.restart_policy == "Never" and bool(runs) and all(run.finished_at is not None for run in runs)

    def last_output(self, rank: str) -> float:
        """0 if it has printed nothing."""
        return self._output(rank).last or 0.0

    def _output(self, rank: str) -> RankOutput:
        output = self.outputs.get(rank)
        if output is None:
            output = self.outputs[rank] = RankOutput(rank)
        return output

    @property
    def backoff_limit(self) -> int | None:
        limit: int | None = self._run_policy.get("backoffLimit", self.object["spec"].get("backoffLimit"))
        return limit

    @property
    def _run_policy(self) -> Object:
        policy: Object = self.object["spec"].get("runPolicy") or {}
        return policy

    @property
    def _suspend(self) -> bool:
        return bool(self._run_policy.get("suspend"))

    @property
    def _is_suspended(self) -> bool:
        """True if it was suspended and no pod is left that may print something."""
        return self._suspend and all(tracked.pod.finished for tracked in self._present())

    def _present(self) -> list[_TrackedPod]:
        return sorted(
            (tracked for tracked in self._pods.values() if not tracked.deleted), key=lambda tracked: tracked.order
        )

    def _order(self, rank: str) -> tuple[int, int]:
        if rank not in self._orders:
            self._orders[rank] = self._new_order(rank)
        return self._orders[rank]

    def _new_order(self, rank: str) -> tuple[int, int]:
        roles = [role.label for role in self.kind.roles]
        role, _, index = rank.rpartition("-") if rank not in roles else (rank, "", "")
        return roles.index(role) if role in roles else len(roles), int(index) if index.isdecimal() else 0


def _count(job: Job, role: str) -> int:
    replica = job.replicas.get(role)
    return replica.count if replica else 0


def _volumes(job: Job) -> frozenset[str]:
    """The names of the volumes in the job's templates."""
    specs = [replica.template.get("spec") or {} for replica in job.replicas.values()]
    return frozenset(str(volume.get("name")) for spec in specs for volume in spec.get("volumes") or [])


def _command(job: Job) -> Sequence[str]:
    """Command and arguments of the first role's training container, which may set the number of epochs."""
    for replica in job.replicas.values():
        for container in value_at(replica.template, "spec", "containers", default=()):
            if container.get("name") == replica.container:
                return [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
    return []


def state_of(job: Object, target: Target) -> JobState:
    """The state of a job as the cluster has it, before anything is known of its pods."""
    state = JobState(read_job(job), job["metadata"]["uid"], python=target.python)
    if target.embedded and state.progress.epochs is None:
        state.progress = Progress(epochs=_epochs_in_program(state))
    return state


def _epochs_in_program(state: JobState) -> int | None:
    """Read from the program on this machine that the job runs, if there is one."""
    directory = (state.object["metadata"].get("annotations") or {}).get(DIRECTORY) or "/"
    programs = [Path(directory, word) for word in state.command if word.endswith(".py")]
    try:
        return epochs_in_source(_beginning(programs[0])) if programs else None
    except (OSError, ValueError):
        return None


def _beginning(path: Path) -> str:
    """The first bytes of a regular file. The job names it: another one might never end, or wait for ever."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return file.read(_MAX_SOURCE).decode(errors="replace")
