"""Rollouts as plans: a small world carries them out, in which pods become ready and fail in any order."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.controllers.workloads.plans.deployment_plan import REVISION, DeploymentPlan, plan_deployment
from trainwright.objects import Object, copied
from trainwright.objects.conditions import find_condition

START = datetime(2026, 1, 1, tzinfo=UTC)


def deployment(*, replicas: int = 3, image: str = "a", **spec: Any) -> Object:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": image}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "n", "uid": "d", "generation": 1},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template,
            "strategy": strategy,
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
            **spec,
        },
        "status": {},
    }


def rolling(surge: int | str, unavailable: int | str) -> Object:
    return {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


@dataclass
class World:
    """The API server and the ReplicaSet controller, reduced to counts."""

    deployment: Object
    sets: dict[str, Object] = field(default_factory=dict)
    now: datetime = START
    events: list[str] = field(default_factory=list)

    def plan(self) -> DeploymentPlan:
        live = {one["metadata"]["uid"]: one["status"].get("replicas", 0) for one in self.sets.values()}
        return plan_deployment(self.deployment, self.sets.values(), live_pods=live, now=self.now)

    def step(self) -> DeploymentPlan:
        plan = self.plan()
        self.now += timedelta(seconds=1)
        if plan.create is not None:
            created = copied(plan.create)
            name = created["metadata"]["name"]
            created["metadata"] |= {"uid": name, "creationTimestamp": self.now.strftime("%Y-%m-%dT%H:%M:%SZ")}
            self.sets[name] = created | {"status": {}}
        for name, changed in plan.update.items():
            self.sets[name] = changed
        for name in plan.delete:
            del self.sets[name]
        if plan.deployment is not None:
            self.deployment = plan.deployment
        self.events += plan.events
        return plan

    def create_pods(self, name: str) -> None:
        """The ReplicaSet controller: deletes surplus pods, those that are not available first, and creates others."""
        one = self.sets[name]
        wanted, status = one["spec"]["replicas"], one["status"]
        available = min(status.get("availableReplicas", 0), wanted)
        one["status"] = {"replicas": wanted, "availableReplicas": available, "readyReplicas": available}
        one["status"]["observedGeneration"] = one["metadata"].get("generation", 0)

    def set_available(self, name: str, count: int) -> None:
        one = self.sets[name]
        available = max(min(count, one["status"].get("replicas", 0)), 0)
        one["status"] |= {"availableReplicas": available, "readyReplicas": available}

    def settle(self, *, steps: int = 60) -> None:
        for _ in range(steps):
            before = copied(self.sets)
            plan = self.step()
            for name in self.sets:
                self.create_pods(name)
                self.set_available(name, self.sets[name]["spec"]["replicas"])
            if plan == DeploymentPlan() and self.sets == before:
                return
        raise AssertionError(f"still changing after {steps} steps: {self.plan()}")

    def change(self, **spec: Any) -> None:
        self.deployment = copied(self.deployment)
        self.deployment["spec"] |= spec
        self.deployment["metadata"]["generation"] += 1

    def set_image(self, image: str) -> None:
        template = copied(self.deployment["spec"]["template"])
        template["spec"]["containers"][0]["image"] = image
        self.change(template=template)

    @property
    def replicas(self) -> int:
        return sum(one["spec"]["replicas"] for one in self.sets.values())

    @property
    def available(self) -> int:
        return sum(one["status"].get("availableReplicas", 0) for one in self.sets.values())

    def condition(self, type_: str) -> tuple[str, str]:
        found = find_condition(self.deployment["status"], type_) or {}
        return found.get("status", ""), found.get("reason", "")

    def sizes(self) -> dict[str, int]:
        """Replicas by image."""
        return {
            one["spec"]["template"]["spec"]["containers"][0]["image"]: one["spec"]["replicas"]
            for one in self.sets.values()
        }


def test_new_deployment_creates_one_replica_set_with_hash_and_revision() -> None:
    world = World(deployment(replicas=2))

    plan = world.step()

    assert plan.create is not None
    metadata, spec = plan.create["metadata"], plan.create["spec"]
    digest = metadata["labels"]["pod-template-hash"]
    assert metadata["name"] == f"web-{digest}"
    assert spec["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": digest}
    assert spec["template"]["metadata"]["labels"] == {"app": "web", "pod-template-hash": digest}
    assert metadata["annotations"] == {
        REVISION: "1",
        "deployment.kubernetes.io/desired-replicas": "2",
        "deployment.kubernetes.io/max-replicas": "3",
    }
    assert metadata["ownerReferences"][0]["kind"] == "Deployment"
    assert world.deployment["metadata"]["annotations"][REVISION] == "1"
    assert world.condition("Progressing") == ("True", "NewReplicaSetCreated")
    assert world.condition("Available") == ("False", "MinimumReplicasUnavailable")
    assert world.events == [f"Scaled up replica set web-{digest} from 0 to 2"]


def test_rollout_completes_with_upstreams_conditions() -> None:
    world = World(deployment())
    world.settle()
    assert world.condition("Progressing") == ("True", "NewReplicaSetAvailable")
    assert world.condition("Available") == ("True", "MinimumReplicasAvailable")
    assert world.deployment["status"]["updatedReplicas"] == world.deployment["status"]["availableReplicas"] == 3


def test_undo_reuses_the_replica_set_and_counts_a_revision() -> None:
    world = World(deployment(image="a"))
    world.settle()
    world.set_image("b")
    world.settle()
    assert world.deployment["metadata"]["annotations"][REVISION] == "2"

    world.set_image("a")
    world.settle()

    assert world.sizes() == {"a": 3, "b": 0}
    revisions = {
        one["spec"]["template"]["spec"]["containers"][0]["image"]: one["metadata"]["annotations"]
        for one in world.sets.values()
    }
    assert revisions["a"][REVISION] == "3"
    assert revisions["a"]["deployment.kubernetes.io/revision-history"] == "1"
    assert revisions["b"][REVISION] == "2"


def test_recreate_waits_until_no_old_pod_is_left() -> None:
    world = World(deployment(strategy={"type": "Recreate"}))
    world.settle()
    world.set_image("b")

    world.step()
    assert world.sizes() == {"a": 0}
    world.step()
    assert world.sizes() == {"a": 0}, "the old pods still run"

    world.create_pods(next(iter(world.sets)))
    world.step()
    assert world.sizes() == {"a": 0, "b": 3}


def test_paused_deployment_scales_but_does_not_roll() -> None:
    world = World(deployment())
    world.settle()
    world.change(paused=True, replicas=5)
    world.set_image("b")

    world.settle()

    assert world.sizes() == {"a": 5}
    assert world.condition("Progressing") == ("Unknown", "DeploymentPaused")
    world.change(paused=False)
    world.step()
    assert world.condition("Progressing")[1] in {"DeploymentResumed", "NewReplicaSetCreated"}
    world.settle()
    assert world.sizes() == {"a": 0, "b": 5}


def test_scaling_during_a_rollout_is_proportional() -> None:
    world = World(deployment(replicas=10, strategy=rolling(3, 2)))
    world.settle()
    world.set_image("b")
    for _ in range(4):
        world.step()
        for name in world.sets:
            world.create_pods(name)
    assert world.sizes() == {"a": 8, "b": 5}

    world.change(replicas=15)
    world.step()

    assert world.sizes() == {"a": 11, "b": 7}


def test_deadline_is_exceeded_without_progress() -> None:
    world = World(deployment(progressDeadlineSeconds=60))
    plan = world.step()
    world.step()
    assert plan.requeue_after == pytest.approx(61, abs=1)

    world.now += timedelta(seconds=62)
    world.step()

    assert world.condition("Progressing") == ("False", "ProgressDeadlineExceeded")
    assert world.plan().requeue_after is None


def test_old_replica_sets_beyond_the_history_limit_are_deleted() -> None:
    world = World(deployment(revisionHistoryLimit=1))
    for image in "abcd":
        world.set_image(image)
        world.settle()
    assert world.sizes() == {"c": 0, "d": 3}


def test_failure_of_a_replica_set_is_shown_on_the_deployment() -> None:
    world = World(deployment())
    world.step()
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}
    (one,) = world.sets.values()
    one["status"]["conditions"] = [failure | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]

    world.step()
    assert world.condition("ReplicaFailure") == ("True", "FailedCreate")

    one = next(iter(world.sets.values()))
    del one["status"]["conditions"]
    world.step()
    assert world.condition("ReplicaFailure") == ("", "")


amounts = st.one_of(st.integers(0, 4), st.integers(0, 100).map(lambda percent: f"{percent}%"))


@given(st.data())
def test_any_rollout_keeps_its_limits_and_converges(data: st.DataObject) -> None:
    size = data.draw(st.integers(0, 8))
    surge, unavailable = data.draw(amounts), data.draw(amounts)
    if (surge, unavailable) in {(0, 0), ("0%", 0), (0, "0%"), ("0%", "0%")}:
        unavailable = 1
    world = World(deployment(replicas=size, strategy=rolling(surge, unavailable)))
    world.settle()
    most, least = size + pods(surge, size, up=True), size - least_one(surge, unavailable, size)
    for image in data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3)):
        world.set_image(image)
        for _ in range(data.draw(st.integers(0, 12))):
            world.step()
            assert world.replicas <= most
            assert world.available >= min(least, size)
            name = data.draw(st.sampled_from(sorted(world.sets)))
            world.create_pods(name)
            ready = world.sets[name]["status"].get("availableReplicas", 0)
            world.set_available(name, ready + data.draw(st.integers(0, 2)))
    world.settle()
    newest = world.deployment["spec"]["template"]["spec"]["containers"][0]["image"]
    assert {image: count for image, count in world.sizes().items() if count} == ({newest: size} if size else {})
    assert world.plan() == DeploymentPlan()


@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.booleans())
def test_any_scaling_during_a_rollout_converges(sizes: list[int], ready: bool) -> None:
    world = World(deployment(replicas=4, strategy=rolling(1, 1)))
    world.settle()
    world.set_image("b")
    for size in sizes:
        world.step()
        world.change(replicas=size)
        for name in world.sets:
            world.create_pods(name)
            if ready:
                world.set_available(name, 2)
        assert world.replicas <= max(4, *sizes) + 1
    world.settle()
    assert {image: count for image, count in world.sizes().items() if count} == ({"b": sizes[-1]} if sizes[-1] else {})


def pods(value: int | str, size: int, *, up: bool) -> int:
    if isinstance(value, int):
        return value
    product = int(value[:-1]) * size
    return -(-product // 100) if up else product // 100


def least_one(surge: int | str, unavailable: int | str, size: int) -> int:
    count = pods(unavailable, size, up=False)
    return count if count or pods(surge, size, up=True) else 1


def test_scaling_to_the_size_of_the_old_replica_set_does_not_stop_the_rollout() -> None:
    world = World(deployment(replicas=4, strategy=rolling(1, 1)))
    world.settle()
    world.set_image("b")
    for size in (5, 1, 2):
        world.step()
        world.change(replicas=size)
        for name in world.sets:
            world.create_pods(name)
    assert world.sizes() == {"a": 2, "b": 0}

    world.settle()

    assert world.sizes() == {"a": 0, "b": 2}
