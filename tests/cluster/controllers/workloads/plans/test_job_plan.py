"""Jobs as plans: a small world carries them out, in which pods end in any order and the status may be lost."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.controllers.workloads.plans.job_plan import JobPlan, is_finished, plan_job
from trainwright.cluster.controllers.workloads.plans.job_pods import FINALIZER, Backoff, format_indexes, read_indexes
from trainwright.objects import Object, copied
from trainwright.objects.conditions import find_condition
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.times import format_time

START = datetime(2026, 1, 1, tzinfo=UTC)
INDEX = "batch.kubernetes.io/job-completion-index"


def job(**spec: Any) -> Object:
    defaults: Object = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "selector": {"matchLabels": {"job": "j"}},
        "template": {
            "metadata": {"labels": {"job": "j"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]},
        },
    }
    metadata = {"name": "j", "namespace": "n", "uid": "u", "generation": 1}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": defaults | spec, "status": {}}


@dataclass
class World:
    """The API server: stores what plans ask for. Pods have no node, so they are removed when their finalizer is."""

    job: Object
    pods: dict[str, Object] = field(default_factory=dict)
    now: datetime = START
    backoff: Backoff = field(default_factory=Backoff)
    created: int = 0
    ended: dict[str, str] = field(default_factory=dict)
    """By uid: how each pod ended."""

    def plan(self) -> JobPlan:
        pods = [msgspec.convert(pod, Pod) for pod in self.pods.values()]
        return plan_job(self.job, pods, self.backoff, self.now)

    def step(self, *, lose: str = "") -> JobPlan:
        """Carries out one plan. `lose`: the controller crashes before the status is written, or before finalizers are
        removed."""
        plan = self.plan()
        for pod in plan.discard:
            self._untrack(pod.name)
            self._delete(pod.name)
        for pod in plan.delete:
            self._delete(pod.name)
        for rendered in plan.create:
            self.created += 1
            made = copied(rendered)
            name = f"{made['metadata'].pop('generateName')}{self.created}"
            made["metadata"] |= {"name": name, "uid": name, "creationTimestamp": format_time(self.now)}
            self.pods[name] = made | {"status": {"phase": "Pending"}}
        if lose == "status":
            return plan
        if plan.status is not None:
            self.job = self.job | {"status": plan.status}
        self.backoff = plan.backoff
        if lose != "finalizers":
            for one in plan.untrack:
                self._untrack(one.name)
        return plan

    def settle(self) -> None:
        for _ in range(50):
            plan = self.step()
            if plan.is_empty:
                return
            if plan.requeue_after is not None and not plan.create:
                self.now += timedelta(seconds=plan.requeue_after)
        raise AssertionError(f"still changing: {self.plan()}")

    def end(self, name: str, phase: str) -> None:
        terminated = {"exitCode": int(phase == "Failed"), "finishedAt": format_time(self.now)}
        state = {"name": "main", "state": {"terminated": terminated}}
        self.pods[name]["status"] = {"phase": phase, "containerStatuses": [state]}
        self.ended[self.pods[name]["metadata"]["uid"]] = phase

    @property
    def running(self) -> list[str]:
        return sorted(
            name
            for name, pod in self.pods.items()
            if pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"]
        )

    @property
    def status(self) -> Object:
        status: Object = self.job["status"]
        return status

    def reason(self, condition: str) -> str:
        return str((find_condition(self.status, condition) or {}).get("reason", ""))

    def _delete(self, name: str) -> None:
        metadata = self.pods[name]["metadata"]
        metadata["deletionTimestamp"] = format_time(self.now)
        if not metadata.get("finalizers"):
            del self.pods[name]

    def _untrack(self, name: str) -> None:
        if name not in self.pods:
            return
        metadata = self.pods[name]["metadata"]
        metadata["finalizers"] = [one for one in metadata.get("finalizers") or () if one != FINALIZER]
        if "deletionTimestamp" in metadata and not metadata["finalizers"]:
            del self.pods[name]


def test_job_completes_when_all_completions_are_reached() -> None:
    world = World(job(completions=3, parallelism=2))
    world.settle()
    assert len(world.running) == 2
    while not is_finished(world.job):
        world.end(world.running[0], "Succeeded")
        world.settle()
        assert len(world.running) <= 2
    assert (world.reason("Complete"), world.status["succeeded"], world.created) == ("CompletionsReached", 3, 3)


def test_back_off_doubles_with_every_failure() -> None:
    world = World(job(backoffLimit=3))
    world.settle()
    waits = []
    for _ in range(3):
        world.end(world.running[0], "Failed")
        while not (plan := world.step()).is_empty:
            pass
        assert plan.requeue_after is not None
        waits.append(plan.requeue_after)
        world.now += timedelta(seconds=plan.requeue_after)
        world.settle()
    assert waits == pytest.approx([10, 20, 40])
    world.end(world.running[0], "Failed")
    world.settle()
    assert (world.reason("Failed"), world.status["failed"]) == ("BackoffLimitExceeded", 4)


def test_finished_job_expires_after_its_ttl() -> None:
    world = World(job(ttlSecondsAfterFinished=100))
    world.settle()
    world.end(world.running[0], "Succeeded")
    while not is_finished(world.job):
        world.step()
    assert world.plan() == JobPlan(requeue_after=100)
    world.now += timedelta(seconds=100)
    assert world.plan().expired


@given(st.data())
def test_every_pod_is_counted_once_whatever_is_lost(data: st.DataObject) -> None:
    """Pods end in any order, and the controller crashes between any two writes."""
    indexed = data.draw(st.booleans())
    completions, parallelism = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    mode = "Indexed" if indexed else "NonIndexed"
    limit = data.draw(st.integers(0, 3))
    world = World(job(completionMode=mode, completions=completions, parallelism=parallelism, backoffLimit=limit))
    for _ in range(80):
        if is_finished(world.job):
            break
        world.step(lose=data.draw(st.sampled_from(["", "", "", "finalizers", "status"])))
        world.now += timedelta(seconds=700)
        assert len(world.running) <= parallelism
        indexes = [world.pods[name]["metadata"].get("labels", {}).get(INDEX) for name in world.running]
        assert not indexed or len(set(indexes)) == len(indexes), "two pods of one index run at once"
        ends = data.draw(st.booleans())
        if ends and world.running:
            name = data.draw(st.sampled_from(world.running))
            world.end(name, data.draw(st.sampled_from(["Succeeded", "Succeeded", "Failed"])))
    for _ in range(60):  # the rest succeeds
        if is_finished(world.job):
            break
        world.settle()
        for name in world.running:
            world.end(name, "Succeeded")
    assert is_finished(world.job)
    assert world.status["uncountedTerminatedPods"] == {}
    succeeded = list(world.ended.values()).count("Succeeded")
    if world.reason("Complete"):
        assert world.status["succeeded"] == completions
        assert not indexed or world.status["completedIndexes"] == format_indexes(range(completions))
        assert world.status.get("failed", 0) == list(world.ended.values()).count("Failed") <= limit
    else:
        assert world.reason("Failed") == "BackoffLimitExceeded"
        assert world.status.get("succeeded", 0) <= succeeded
        assert world.status["failed"] > limit
    assert not any(pod["metadata"].get("finalizers") for pod in world.pods.values())
    assert world.plan() == JobPlan()


@given(st.sets(st.integers(0, 30)))
def test_indexes_are_read_as_they_were_written(indexes: set[int]) -> None:
    assert read_indexes(format_indexes(indexes), 31) == indexes
