"""Gangs: all pods of a PodGroup are placed, or none."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cluster.embedded_cluster import embedded_cluster
from tests.support.waiting import eventually
from trainwright.cluster.controllers.gangs import Members, PodGroup, group_status, schedule_gang
from trainwright.cluster.controllers.scheduler_filters import Bind, NodeUsage, SchedulableNode, SchedulablePod
from trainwright.kube.client.async_client import Client
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.objects import Object
from trainwright.objects.conditions import find_condition
from trainwright.objects.kinds.gangs import GangScheduler
from trainwright.objects.resources import NODES, PODS

VOLCANO, PLUGINS = GangScheduler("volcano"), GangScheduler("scheduler-plugins")
GPU = "example.com/gpu"


def node(gpus: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {
            "allocatable": {GPU: str(gpus), "pods": "100"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def member(gang: GangScheduler, group: str, index: int, gpus: int = 1) -> Object:
    metadata: dict[str, Any] = {"name": f"{group}-{index}", "namespace": "default"}
    if gang.is_volcano:
        metadata["annotations"] = {"scheduling.k8s.io/group-name": group}
    else:
        metadata["labels"] = {"scheduling.x-k8s.io/pod-group": group}
    resources = {"limits": {GPU: str(gpus)}} if gpus else {}
    container = {"name": "main", "image": "busybox", "resources": resources}
    spec = {"schedulerName": gang.scheduler, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pod_group(gang: GangScheduler, name: str, members: int, **spec: Any) -> Object:
    return {
        "apiVersion": gang.resource.api_version,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": members, **spec},
    }


class TestDecision:
    def decide(self, gang: GangScheduler, count: int, least: int, gpus: int, *, placed: int = 0) -> dict[str, Any]:
        return dict(
            schedule_gang(
                gang,
                view(PodGroup, pod_group(gang, "g", least)),
                Members([view(SchedulablePod, member(gang, "g", index)) for index in range(count)], placed),
                nodes=[view(SchedulableNode, node(gpus))],
                used={},
                claims={},
            )
        )

    @pytest.mark.parametrize("gang", [VOLCANO, PLUGINS])
    def test_a_gang_that_fits_is_bound_as_a_whole(self, gang: GangScheduler) -> None:
        decisions = self.decide(gang, 3, 3, gpus=3)
        assert [type(one) for one in decisions.values()] == [Bind] * 3

    def test_more_than_the_minimum_is_bound_as_far_as_it_fits(self) -> None:
        decisions = self.decide(VOLCANO, 4, 2, gpus=3)
        assert sorted(decisions) == ["g-0", "g-1", "g-2"]

    def test_a_restarted_member_joins_those_that_run(self) -> None:
        assert isinstance(self.decide(VOLCANO, 1, 3, gpus=1, placed=2)["g-0"], Bind)

    def test_words_of_volcano(self) -> None:
        decisions = self.decide(VOLCANO, 3, 3, gpus=2)
        assert {one.message for one in decisions.values()} == {
            (
                "3/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable; Pending: "
                "1 Unschedulable, 2 Schedulable"
            )
        }
        assert all(f"Insufficient {GPU}" in one.text for one in decisions.values())

    def test_words_of_the_coscheduling_plugin(self) -> None:
        assert self.decide(PLUGINS, 1, 3, gpus=9)["g-0"].message == (
            "pre-filter pod g-0 cannot find enough sibling pods, current pods number: 1, minMember of group: 3"
        )
        assert self.decide(PLUGINS, 3, 3, gpus=2)["g-0"].message == (
            "PodGroup default/g gets rejected due to Pod(g-2) is unschedulable even after PostFilter"
        )

    def test_volcanos_phase_admits_what_the_node_could_run(self) -> None:
        nodes = [view(SchedulableNode, node(2))]

        def phase(gpus: int, placed: int = 0) -> object:
            group = view(PodGroup, pod_group(VOLCANO, "g", 2, minResources={GPU: str(gpus), "cpu": "9999"}))
            return group_status(VOLCANO, group, Members([], placed), placed, nodes)["phase"]

        assert (phase(2), phase(3), phase(2, placed=2)) == ("Inqueue", "Pending", "Running")


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=4),
    st.integers(1, 6),
    st.randoms(use_true_random=False),
)
def test_gangs_never_hold_resources_that_they_cannot_use(gangs: list[tuple[int, int]], gpus: int, random: Any) -> None:
    """Gangs arrive and end in any order: each one either runs whole or holds nothing, and every one that the machine
    could run gets its turn."""
    usage, nodes = NodeUsage(), [view(SchedulableNode, node(gpus))]
    waiting = {f"g{number}": shape for number, shape in enumerate(gangs)}
    running: dict[str, Sequence[SchedulablePod]] = {}
    finished: set[str] = set()
    for _ in range(4 * len(gangs)):
        names = [*waiting]
        random.shuffle(names)
        for name in names:
            count, each = waiting[name]
            pods = [view(SchedulablePod, member(VOLCANO, name, index, each)) for index in range(count)]
            decisions = schedule_gang(
                VOLCANO,
                view(PodGroup, pod_group(VOLCANO, name, count)),
                Members(pods, 0),
                nodes=nodes,
                used=usage.totals,
                claims={},
            )
            placed = [pod for pod in pods if isinstance(decisions[pod.metadata.name], Bind)]
            assert len(placed) in {0, count}
            if placed:
                for pod in placed:
                    usage.add(ObjectKey("Pod", "default", pod.metadata.name), "n1", pod)
                running[name] = placed
                del waiting[name]
        assert sum(len(pods) * gangs[int(name[1:])][1] for name, pods in running.items()) <= gpus
        if running:
            name = random.choice(sorted(running))
            for pod in running.pop(name):
                usage.remove(ObjectKey("Pod", "default", pod.metadata.name))
            finished.add(name)
    assert set(waiting) == {name for name, (count, each) in waiting.items() if count * each > gpus}


@pytest.fixture(params=[VOLCANO, PLUGINS], ids=lambda gang: gang.name)
async def gang_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[GangScheduler, Client]]:
    gang: GangScheduler = request.param
    cluster = embedded_cluster(tmp_path / "data", with_node=False, gang_scheduler=gang.name)
    async with cluster as running, Client(running.config) as client:
        await client.create(NODES, node(4))
        await client.patch(NODES, "n1", {"status": node(4)["status"]}, subresource="status")
        yield gang, client


async def test_two_gangs_that_need_more_than_half_run_one_after_the_other(
    gang_cluster: tuple[GangScheduler, Client],
) -> None:
    gang, client = gang_cluster
    for name in ("a", "b"):
        await client.create(gang.resource, pod_group(gang, name, 3))
    for index in range(3):  # interleaved, so that each gang could take two of the four
        for name in ("a", "b"):
            await client.create(PODS, member(gang, name, index))

    async def bound() -> dict[str, int]:
        pods = (await client.list(PODS, namespace="default")).items
        return {
            name: sum(bool(pod["spec"].get("nodeName")) for pod in pods if pod["metadata"]["name"].startswith(name))
            for name in ("a", "b")
        }

    first = await eventually(bound, lambda counts: 3 in counts.values())
    winner, loser = ("a", "b") if first["a"] == 3 else ("b", "a")
    assert first[loser] == 0

    async def reason() -> Object:
        pod = await client.get(PODS, f"{loser}-0", namespace="default")
        return find_condition(pod["status"], "PodScheduled") or {}

    await eventually(reason, lambda condition: "unschedulable" in condition.get("message", ""))
    for index in range(3):
        await client.delete(PODS, f"{winner}-{index}", namespace="default", grace_period_seconds=0)
    await eventually(bound, lambda counts: counts[loser] == 3)

    async def phase() -> object:
        found = await client.get(gang.resource, loser, namespace="default")
        return (found.get("status") or {}).get("phase")

    await eventually(phase, lambda text: text == ("Running" if gang.is_volcano else "Scheduled"))


async def test_members_wait_for_the_last_one(gang_cluster: tuple[GangScheduler, Client]) -> None:
    gang, client = gang_cluster
    await client.create(gang.resource, pod_group(gang, "a", 2))
    await client.create(PODS, member(gang, "a", 0))

    async def condition() -> Object:
        pod = await client.get(PODS, "a-0", namespace="default")
        return find_condition(pod["status"], "PodScheduled") or {}

    await eventually(condition, lambda found: found.get("status") == "False")
    await client.create(PODS, member(gang, "a", 1))
    await eventually(condition, lambda found: found.get("status") == "True")


def view(kind: Any, obj: Object) -> Any:
    import msgspec

    return msgspec.convert(obj, kind)
