"""Decides about one Job: which pods to create and delete, and its status.

The steps and texts are those of upstream's job controller. A finished pod is counted exactly once: its uid is written
to `status.uncountedTerminatedPods`, then its finalizer is removed, then it moves to a counter. A plan is carried out
and made again until it is empty.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from trainwright.cluster.controllers.workloads.plans.job_pods import (
    FINALIZER,
    IGNORED_INDEX_FAILURES,
    INDEX,
    INDEX_FAILURES,
    Backoff,
    annotated_count,
    completion_index,
    finished_at,
    format_indexes,
    has_failed,
    is_indexed,
    is_tracked,
    match_failure_policy,
    read_indexes,
    replaces_failed_only,
)
from trainwright.cluster.controllers.workloads.plans.owned_pods import is_active
from trainwright.cluster.controllers.workloads.plans.pod_template import render_pod
from trainwright.cluster.controllers.workloads.plans.replicaset_plan import BURST, deletion_order
from trainwright.objects import Object, copied
from trainwright.objects.conditions import find_condition, is_condition_true
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.times import format_time, parse_time

_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_LONGEST_PREFIX = 58


@dataclass(slots=True)
class JobPlan:
    """`delete` pods keep their finalizer, so that they are counted; `discard` ones lose it first and are not. Then the
    status is written, and the finalizer of `untrack` pods removed."""

    create: list[Object] = field(default_factory=list)
    delete: list[Pod] = field(default_factory=list)
    discard: list[Pod] = field(default_factory=list)
    status: Object | None = None
    untrack: list[Pod] = field(default_factory=list)
    events: list[tuple[str, str, str]] = field(default_factory=list)
    """Type, reason, message; recorded after the status is written."""
    backoff: Backoff = field(default_factory=Backoff)
    requeue_after: float | None = None
    expired: bool = False
    """The Job itself is to be deleted: its ttlSecondsAfterFinished is over."""

    @property
    def is_empty(self) -> bool:
        return not (self.create or self.delete or self.discard or self.untrack or self.expired) and self.status is None


def plan_job(job: Object, pods: Sequence[Pod], backoff: Backoff, now: datetime) -> JobPlan:
    """`pods` are those that the Job owns."""
    if is_finished(job):
        return _expiry(job, now)
    return _JobSync(job, pods, backoff, now).run()


def is_finished(job: Object) -> bool:
    status = job.get("status") or {}
    return is_condition_true(status, "Complete") or is_condition_true(status, "Failed")


def _expiry(job: Object, now: datetime) -> JobPlan:
    seconds = job["spec"].get("ttlSecondsAfterFinished")
    if seconds is None or "deletionTimestamp" in job["metadata"]:
        return JobPlan()
    status = job["status"]
    finished = next(condition for condition in status["conditions"] if condition["type"] in {"Complete", "Failed"})
    left = (parse_time(finished["lastTransitionTime"]) + timedelta(seconds=seconds) - now).total_seconds()
    return JobPlan(requeue_after=left) if left > 0 else JobPlan(expired=True)


class _JobSync:
    """One reconciliation of a Job that has not finished."""

    def __init__(self, job: Object, pods: Sequence[Pod], backoff: Backoff, now: datetime) -> None:
        self._job, self._spec, self._now = job, job["spec"], now
        self._old: Object = job.get("status") or {}
        self._status = copied(self._old)
        self._completions: int | None = self._spec.get("completions")
        self._indexed = is_indexed(job)
        self._pods = sorted(pods, key=lambda pod: (completion_index(pod) or 0, pod.name))
        self._active = [pod for pod in self._pods if is_active(pod)]
        self._terminating = sum(pod.metadata.terminating and not pod.finished for pod in self._pods)
        uncounted = self._status.get("uncountedTerminatedPods") or {}
        self._uncounted = {name: list(uncounted.get(name) or ()) for name in ("succeeded", "failed")}
        self._finish: tuple[str, str, str] | None = None
        """Type, reason and message of the interim condition that ends the Job."""
        self._met_before = False
        succeeded, failed = self._new("succeeded"), self._new("failed")
        self._succeeded_indexes, self._failed_indexes = self._read_indexes()
        counted = [pod for pod in failed if match_failure_policy(job, pod).counts]
        self._failed = self._status.get("failed", 0) + len(counted) + len(self._uncounted["failed"])
        self._succeeded = self._status.get("succeeded", 0) + len(succeeded) + len(self._uncounted["succeeded"])
        if self._indexed:
            self._succeeded = len(self._succeeded_indexes)
        self._plan = JobPlan(backoff=backoff.after(succeeded, failed))

    def run(self) -> JobPlan:
        if "startTime" not in self._status and not self._spec.get("suspend"):
            self._status["startTime"] = format_time(self._now)
        self._evaluate_end()
        active, ready = len(self._active), sum(pod.ready for pod in self._active)
        if self._finish is not None:
            self._plan.delete = list(self._active)
            self._terminating, active, ready = self._terminating + active, 0, 0
        elif "deletionTimestamp" not in self._job["metadata"]:
            self._manage_pods()
            gone = self._plan.discard
            self._terminating += len(gone)
            active += len(self._plan.create) - len(gone)
            ready -= sum(pod.ready for pod in gone)
            if self._has_succeeded(active):
                self._finish = ("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")
            else:
                self._set_suspended()
        self._set("active", active)
        self._status |= {"ready": ready, "terminating": self._terminating}
        self._count_pods()
        self._set_conditions()
        self._status["uncountedTerminatedPods"] = {name: uids for name, uids in self._uncounted.items() if uids}
        if self._status != self._old:
            self._plan.status = self._status
        return self._plan

    # Whether the Job ends

    def _evaluate_end(self) -> None:
        for known in ("SuccessCriteriaMet", "FailureTarget"):
            if is_condition_true(self._status, known):
                condition = find_condition(self._status, known) or {}
                self._finish = (known, condition.get("reason", ""), condition.get("message", ""))
                self._met_before = True
                return
        if (message := self._policy_failure()) is not None:
            self._finish = ("FailureTarget", "PodFailurePolicy", message)
        elif self._failed > self._spec["backoffLimit"] or self._restarted_too_often():
            text = "Job has reached the specified backoff limit"
            self._finish = ("FailureTarget", "BackoffLimitExceeded", text)
        elif (left := self._time_left()) is not None and left <= 0:
            text = "Job was active longer than specified deadline"
            self._finish = ("FailureTarget", "DeadlineExceeded", text)
        elif left is not None:
            self._requeue(left)
        if self._finish is None and self._indexed:
            self._finish = self._end_by_indexes()

    def _end_by_indexes(self) -> tuple[str, str, str] | None:
        failed, limit = self._failed_indexes, self._spec.get("maxFailedIndexes")
        if self._limits_indexes and limit is not None and len(failed) > limit:
            text = "Job has exceeded the specified maximal number of failed indexes"
            return ("FailureTarget", "MaxFailedIndexesExceeded", text)
        if self._limits_indexes and failed and len(failed) + len(self._succeeded_indexes) >= (self._completions or 0):
            return ("FailureTarget", "FailedIndexes", "Job has failed indexes")
        for index, rule in enumerate((self._spec.get("successPolicy") or {}).get("rules") or ()):
            wanted, count = rule.get("succeededIndexes"), rule.get("succeededCount")
            met = self._succeeded_indexes
            if wanted is not None:
                required = read_indexes(wanted, self._completions or 0)
                met = met & required
                enough = bool(required) and met == required
            else:
                enough = False
            if met and (enough or (count is not None and len(met) >= count)):
                return ("SuccessCriteriaMet", "SuccessPolicy", f"Matched rules at index {index}")
        return None

    def _policy_failure(self) -> str | None:
        for pod in self._pods:
            if has_failed(pod, self._job):
                match = match_failure_policy(self._job, pod)
                if match.action == "FailJob":
                    return match.message
        return None

    def _restarted_too_often(self) -> bool:
        if self._spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        restarts = sum(pod.restarts for pod in self._pods if pod.phase in {"Running", "Pending"})
        return restarts >= max(int(self._spec["backoffLimit"]), 1)

    def _time_left(self) -> float | None:
        seconds, started = self._spec.get("activeDeadlineSeconds"), self._status.get("startTime")
        if seconds is None or started is None or self._spec.get("suspend"):
            return None
        return float(seconds) - (self._now - parse_time(started)).total_seconds()

    def _has_succeeded(self, active: int) -> bool:
        if active:
            return False
        return bool(self._succeeded > 0 if self._completions is None else self._succeeded >= self._completions)

    # Pods

    def _manage_pods(self) -> None:
        active = len(self._active)
        if self._spec.get("suspend"):
            self._plan.discard = list(self._active)
            return
        parallelism = self._spec["parallelism"]
        if self._completions is None:
            wanted = active if self._succeeded else parallelism
        else:
            wanted = max(min(self._completions - self._succeeded, parallelism), 0)
        self._plan.discard = self._surplus(max(active - wanted, 0))[:BURST]
        if self._plan.discard:
            return  # a reconciliation either deletes or creates
        missing = wanted - active - (self._terminating if replaces_failed_only(self._job) else 0)
        if missing <= 0:
            return
        wait = 0.0 if self._limits_indexes else self._plan.backoff.remaining(self._now)
        if wait > 0:
            self._requeue(wait)
        elif self._indexed:
            self._plan.create = [self._render(index) for index in self._next_indexes(min(missing, BURST))]
        else:
            self._plan.create = [self._render(None)] * min(missing, BURST)

    def _surplus(self, count: int) -> list[Pod]:
        """At least `count` active pods to remove; of an indexed Job all that have no index of their own."""
        removed: list[Pod] = []
        kept = sorted(self._active, key=deletion_order)
        if self._indexed:
            last: dict[int, Pod] = {}
            for pod in kept:
                index = completion_index(pod)
                if index is not None and index < (self._completions or 0):
                    last[index] = pod
            removed = [pod for pod in kept if last.get(completion_index(pod) or 0) is not pod]
            kept = [pod for pod in kept if pod not in removed]
        return removed + kept[: max(count - len(removed), 0)]

    def _next_indexes(self, count: int) -> list[int]:
        taken = self._succeeded_indexes | self._failed_indexes | {completion_index(pod) for pod in self._active}
        if replaces_failed_only(self._job):
            taken |= {completion_index(pod) for pod in self._pods if pod.metadata.terminating and not pod.finished}
        free = [index for index in range(self._completions or 0) if index not in taken][:count]
        if not self._limits_indexes:
            return free
        waits = {index: self._index_backoff(index) for index in free}
        ready = [index for index in free if waits[index] <= 0]
        if free and not ready:
            self._requeue(min(waits.values()))
        return ready

    def _render(self, index: int | None) -> Object:
        template = copied(self._spec["template"])
        finalizers = template["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            finalizers = [*finalizers, FINALIZER]
        if index is None:
            return render_pod(self._job, template, finalizers=finalizers)
        name, suffix = self._job["metadata"]["name"], f"-{index}-"
        for container in (template["spec"].get("initContainers") or []) + template["spec"]["containers"]:
            variables = container.setdefault("env", [])
            if all(variable["name"] != _INDEX_VARIABLE for variable in variables):
                source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
                variables.append({"name": _INDEX_VARIABLE, "valueFrom": source})
        template["spec"]["hostname"] = f"{name}-{index}"
        return render_pod(
            self._job,
            template,
            generateName=(name[: _LONGEST_PREFIX - len(suffix)] if len(name + suffix) > _LONGEST_PREFIX else name)
            + suffix,
            finalizers=finalizers,
            labels={INDEX: str(index)},
            annotations={INDEX: str(index), **self._index_failures(index)},
        )

    # Limits per index

    @property
    def _limits_indexes(self) -> bool:
        return self._indexed and self._spec.get("backoffLimitPerIndex") is not None

    def _replaced(self, index: int) -> Pod | None:
        """The failed pod that the next one of the index replaces. It is tracked until then: it has the count."""
        failed = [
            pod
            for pod in self._pods
            if completion_index(pod) == index and is_tracked(pod) and has_failed(pod, self._job)
        ]
        return max(failed, key=lambda pod: (_failures(pod), finished_at(pod)), default=None)

    def _index_backoff(self, index: int) -> float:
        pod = self._replaced(index)
        return 0.0 if pod is None else Backoff(_failures(pod) + 1, finished_at(pod)).remaining(self._now)

    def _index_failures(self, index: int) -> dict[str, str]:
        if not self._limits_indexes:
            return {}
        pod = self._replaced(index)
        if pod is None:
            return {INDEX_FAILURES: "0"}
        counts = match_failure_policy(self._job, pod).counts
        failures = annotated_count(pod, INDEX_FAILURES) + counts
        ignored = annotated_count(pod, IGNORED_INDEX_FAILURES) + (not counts)
        return {INDEX_FAILURES: str(failures)} | ({IGNORED_INDEX_FAILURES: str(ignored)} if ignored else {})

    def _index_has_failed(self, pod: Pod) -> bool:
        if not has_failed(pod, self._job):
            return False
        match = match_failure_policy(self._job, pod)
        limit: int = self._spec["backoffLimitPerIndex"]
        return match.action == "FailIndex" or (match.counts and annotated_count(pod, INDEX_FAILURES) >= limit)

    # Counting

    def _new(self, outcome: str) -> list[Pod]:
        """Finished pods that the status does not know yet."""
        known = self._uncounted[outcome]
        return [
            pod
            for pod in self._pods
            if is_tracked(pod)
            and pod.metadata.uid not in known
            and self._has_valid_index(pod)
            and (pod.phase == "Succeeded" if outcome == "succeeded" else has_failed(pod, self._job))
        ]

    def _has_valid_index(self, pod: Pod) -> bool:
        index = completion_index(pod)
        return not self._indexed or (index is not None and index < (self._completions or 0))

    def _read_indexes(self) -> tuple[set[int], set[int]]:
        """Succeeded and failed indexes: those in the status, and those of finished pods."""
        if not self._indexed:
            return set(), set()
        tracked = [pod for pod in self._pods if is_tracked(pod) and self._has_valid_index(pod)]
        succeeded = read_indexes(self._status.get("completedIndexes", ""), self._completions or 0)
        succeeded |= {completion_index(pod) or 0 for pod in tracked if pod.phase == "Succeeded"}
        failed: set[int] = set()
        if self._limits_indexes:
            failed = read_indexes(self._status.get("failedIndexes", ""), self._completions or 0)
            failed |= {completion_index(pod) or 0 for pod in tracked if self._index_has_failed(pod)}
        return succeeded, failed

    def _count_pods(self) -> None:
        tracked = {pod.metadata.uid for pod in self._pods if is_tracked(pod)}
        for name, uids in self._uncounted.items():
            kept = [uid for uid in uids if uid in tracked]
            self._set(name, self._status.get(name, 0) + len(uids) - len(kept))
            self._uncounted[name] = kept
        fails = self._finish is not None and self._finish[0] == "FailureTarget"
        for pod in self._pods:
            if not is_tracked(pod) or pod in self._plan.discard or not self._can_untrack(pod):
                continue
            self._plan.untrack.append(pod)
            uid, has_ended_badly = pod.metadata.uid, has_failed(pod, self._job) or fails
            if pod.phase == "Succeeded":
                if not self._indexed and uid not in self._uncounted["succeeded"]:
                    self._uncounted["succeeded"].append(uid)
            elif (
                has_ended_badly
                and uid not in self._uncounted["failed"]
                and self._has_valid_index(pod)
                and match_failure_policy(self._job, pod).counts
            ):
                self._uncounted["failed"].append(uid)
        if self._indexed:
            self._set("succeeded", len(self._succeeded_indexes))
            self._set("completedIndexes", format_indexes(self._succeeded_indexes))
        if self._limits_indexes:
            self._status["failedIndexes"] = format_indexes(self._failed_indexes)

    def _can_untrack(self, pod: Pod) -> bool:
        if self._finish is not None or "deletionTimestamp" in self._job["metadata"] or pod.phase == "Succeeded":
            return True
        if not has_failed(pod, self._job):
            return False
        index = completion_index(pod)
        settled = self._succeeded_indexes | self._failed_indexes | {completion_index(other) for other in self._active}
        if not self._limits_indexes or index is None or index in settled:
            return True
        return self._replaced(index) is not pod

    # Conditions

    def _set_suspended(self) -> None:
        known = find_condition(self._status, "Suspended")
        if self._spec.get("suspend"):
            if known is None or known["status"] != "True":
                self._add_condition("Suspended", "True", "JobSuspended", "Job suspended")
                self._plan.events.append(("Normal", "Suspended", "Job suspended"))
        elif known is not None and known["status"] == "True":
            self._add_condition("Suspended", "False", "JobResumed", "Job resumed")
            self._plan.events.append(("Normal", "Resumed", "Job resumed"))
            self._status["startTime"] = format_time(self._now)

    def _set_conditions(self) -> None:
        """First the interim condition, then, when every pod is counted and gone, the final one."""
        if self._finish is None:
            return
        interim, reason, message = self._finish
        if not self._met_before:
            self._add_condition(interim, "True", reason, message)
            return
        if self._plan.untrack or self._terminating or any(self._uncounted.values()):
            return
        final = {"FailureTarget": "Failed", "SuccessCriteriaMet": "Complete"}[interim]
        self._add_condition(final, "True", reason, message)
        if final == "Failed":
            self._plan.events.append(("Warning", reason, message))
            return
        self._status["completionTime"] = format_time(self._now)
        if self._completions is not None and self._status.get("succeeded", 0) > self._completions:
            text = "Too many succeeded pods running after completion count reached"
            self._plan.events.append(("Warning", "TooManySucceededPods", text))
        self._plan.events.append(("Normal", "Completed", "Job completed"))

    def _add_condition(self, type_: str, status: str, reason: str, message: str) -> None:
        moment = format_time(self._now)
        condition = {"type": type_, "status": status, "lastProbeTime": moment, "lastTransitionTime": moment}
        others = [condition for condition in self._status.get("conditions") or () if condition["type"] != type_]
        self._status["conditions"] = [*others, condition | {"reason": reason, "message": message}]

    def _set(self, name: str, value: int | str) -> None:
        """Go leaves out zero and empty text."""
        if value:
            self._status[name] = value
        else:
            self._status.pop(name, None)

    def _requeue(self, seconds: float) -> None:
        known = self._plan.requeue_after
        self._plan.requeue_after = seconds if known is None else min(known, seconds)


def _failures(pod: Pod) -> int:
    return annotated_count(pod, INDEX_FAILURES) + annotated_count(pod, IGNORED_INDEX_FAILURES)
