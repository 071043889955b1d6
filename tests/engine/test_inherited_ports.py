"""Jobs that an earlier version started with assigned ports: their pods stay, and new pods use the same ports."""

import json
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.engine.planning import STARTED, child, created, decide, deleted, env, manifests
from tests.support.engine.world import World
from tests.support.objects.jobs import JobBuilder, PodBuilder, service, template, view_service
from trainwright.api.kinds import PYTORCH, Kind
from trainwright.api.kinds.jax import JAX
from trainwright.api.kinds.paddle import PADDLE
from trainwright.api.kinds.tensorflow import TENSORFLOW
from trainwright.api.kinds.xgboost import XGBOOST
from trainwright.engine import EMBEDDED, InitContainer, ServiceView, Settings
from trainwright.engine.children.ranks import Rank
from trainwright.engine.inherited_ports import inherited_ports
from trainwright.objects import Object

PORTS = "trainwright.dev/ports"
MASTER, FIRST_WORKER = Rank("Master", 0), Rank("Worker", 0)


def job() -> JobBuilder:
    return JobBuilder().master().workers(2)


def old(role: str, index: int = 0, ports: str = "master-0=20001") -> PodBuilder:
    return PodBuilder(role, index).annotation(PORTS, ports)


def service_with(ports: str, role: str = "Master") -> ServiceView:
    made = service(role, 0)
    made["metadata"]["annotations"] = {PORTS: ports}
    return view_service(made)


def inherited(*pods: PodBuilder) -> dict[Rank, int]:
    return inherited_ports(job().job(), [pod.pod() for pod in pods])


# The ports that pods expect


def test_ports_are_read_from_the_annotations_of_living_pods() -> None:
    ports = {MASTER: 20001, FIRST_WORKER: 2222}
    assert inherited(old("Worker", 1, "master-0=20001,worker-0=2222").running(), PodBuilder("Worker", 0)) == ports
    assert inherited(old("Worker", 1, "master-0=20001"), old("Worker", 0, "worker-0=2222")) == ports
    assert inherited(old("Worker", 0, "master-0=1,worker-0=65535")) == {MASTER: 1, FIRST_WORKER: 65535}


def test_finished_and_deleted_pods_expect_no_ports() -> None:
    assert inherited(old("Worker", 0).failed(1), old("Worker", 1).running().terminating()) == {}


def test_first_versions_named_the_role() -> None:
    assert inherited(old("Worker", 0, "Master=20001")) == {MASTER: 20001}


@pytest.mark.parametrize(
    "text", ["", "master-0", "master-0=", "master-0=x", "master-0=0", "master-0=65536", "worker-2=1"]
)
def test_entries_that_are_no_port_of_a_rank_are_ignored(text: str) -> None:
    assert inherited(old("Worker", 0, f"{text},worker-0=2222")) == {FIRST_WORKER: 2222}


def test_newest_pod_decides_if_pods_disagree() -> None:
    created = {1: "2026-11-15T04:00:01Z", 3: "2026-11-15T04:00:03Z", 2: "2026-11-15T04:00:02Z", 4: None}
    pods = [
        old("Worker", 0, f"master-0={port}").metadata(creationTimestamp=since, uid=str(port))
        for port, since in created.items()
    ]
    assert inherited(*pods) == {MASTER: 3}


# New pods beside old ones


def test_running_pods_of_an_earlier_version_stay() -> None:
    status = {**STARTED, "ports": {"master-0": 20001}}
    pods = [old("Master").running(), old("Worker", 0).running(), old("Worker", 1).running()]
    services = [service_with("master-0=20001"), *(view_service(service("Worker", index)) for index in range(2))]
    first = decide(job().status(status), *pods, services=services, settings=EMBEDDED)
    assert not first.changes_children
    assert decide(job().status(first.status), *pods, services=services, settings=EMBEDDED).empty


def test_new_pod_and_service_have_the_ports_that_old_peers_expect() -> None:
    made = decide(job().status(STARTED), old("Worker", 0).running(), settings=EMBEDDED)
    master, worker = child(made, "digits-master-0"), child(made, "digits-worker-1")
    assert master["metadata"]["annotations"] == {PORTS: "master-0=20001", "node.trainwright.dev/replicas": "3"}
    assert master["spec"]["containers"][0]["ports"] == [{"name": "pytorchjob-port", "containerPort": 20001}]
    assert worker["spec"]["containers"][0]["ports"] == [{"name": "pytorchjob-port", "containerPort": 23456}]
    assert dict(env(master))["MASTER_PORT"] == dict(env(worker))["MASTER_PORT"] == "20001"
    exposed = child(made, "digits-master-0", "Service")
    assert exposed["spec"]["ports"] == [{"name": "pytorchjob-port", "port": 20001}]
    assert exposed["metadata"]["annotations"] == {PORTS: "master-0=20001"}
    assert "annotations" not in child(made, "digits-worker-1", "Service")["metadata"]


@pytest.mark.parametrize(
    ("kind", "roles", "expected"),
    [
        (JAX, {"Worker": 2}, {"COORDINATOR_PORT": "20002"}),
        (PADDLE, {"Master": 1, "Worker": 2}, {"PADDLE_MASTER": "digits-master-0:20001"}),
        (XGBOOST, {"Master": 1, "Worker": 2}, {"MASTER_PORT": "20001", "WORKER_PORT": "20002"}),
        (PYTORCH, {"Master": 1, "Worker": 2}, {"MASTER_PORT": "20001", "PET_RDZV_ENDPOINT": "digits-worker-0:20002"}),
    ],
    ids=lambda value: value.name if isinstance(value, Kind) else "",
)
def test_environment_has_the_ports_that_old_peers_expect(
    kind: Kind, roles: dict[str, int], expected: dict[str, str]
) -> None:
    builder = JobBuilder(kind=kind)
    for role, count in roles.items():
        builder.replica(role, count)
    if kind is PYTORCH:
        builder.spec(elasticPolicy={})
    ports = "master-0=20001,worker-0=20002"
    running = PodBuilder("Worker", 0, kind=kind).annotation(PORTS, ports).running()

    made = child(decide(builder, running), "digits-worker-1")

    assert dict(env(made)).items() >= expected.items()
    assert made["metadata"]["annotations"][PORTS] == (ports if "Master" in roles else "worker-0=20002")


def test_other_ports_of_a_container_stay_as_declared() -> None:
    own = [{"containerPort": 1}, {"name": "metrics", "containerPort": 2}]
    made = decide(job().master(pod=template(ports=own)), old("Worker", 0).running())
    assert child(made, "digits-master-0")["spec"]["containers"][0]["ports"] == [
        *own,
        {"name": "pytorchjob-port", "containerPort": 20001},
    ]


def test_new_worker_waits_for_the_port_that_the_old_master_has() -> None:
    waiting = Settings(init_container=InitContainer(wait_for_port=True))
    made = decide(job(), old("Master").running(), settings=waiting)
    (container,) = child(made, "digits-worker-0")["spec"]["initContainers"]
    assert "/dev/tcp/digits-master-0/20001" in container["command"][2]


def test_orphan_that_is_adopted_counts_as_a_living_pod() -> None:
    made = decide(job(), old("Worker", 0).owner(None).running())
    assert dict(env(child(made, "digits-master-0")))["MASTER_PORT"] == "20001"


def test_declared_ports_are_used_when_the_last_old_pod_has_finished() -> None:
    made = decide(job().status(STARTED), old("Worker", 0).failed(1), settings=EMBEDDED)
    master = child(made, "digits-master-0")
    assert PORTS not in master["metadata"]["annotations"]
    assert dict(env(master))["MASTER_PORT"] == "23456"


def test_ports_annotation_in_the_template_is_ignored() -> None:
    """Otherwise the pods of a copied manifest would look like those of an earlier version."""
    copied = {**template(), "metadata": {"annotations": {PORTS: "worker-0=1", "mine": "1"}}}
    made = child(decide(JobBuilder().workers(1, pod=copied)), "digits-worker-0")
    assert made["metadata"]["annotations"] == {"mine": "1"}


# Services and the status


def test_service_with_another_port_stays_while_an_old_pod_runs() -> None:
    made = decide(job(), old("Worker", 1).running(), services=[service_with("master-0=20001")])
    assert deleted(made, "services") == []
    assert "digits-master-0" not in created(made, "Service")


@pytest.mark.parametrize(("ports", "replaced"), [("master-0=20001", True), ("master-0=23456", False)])
def test_service_with_another_port_is_replaced_when_no_old_pod_runs(ports: str, replaced: bool) -> None:
    made = decide(job(), services=[service_with(ports)])
    assert deleted(made, "services") == (["digits-master-0"] if replaced else [])


def test_ports_in_the_status_are_dropped_with_the_next_write() -> None:
    done = {**STARTED, "ports": {"master-0": 20001}}
    running = [PodBuilder("Master").running(), *(PodBuilder("Worker", index).running() for index in range(2))]
    services = [view_service(service(role, index)) for role, index in (("Master", 0), ("Worker", 0), ("Worker", 1))]
    first = decide(job().status(done), *running, services=services)
    assert first.status is not None
    assert "ports" not in first.status
    assert decide(job().status({**first.status, "ports": {"master-0": 20001}}), *running, services=services).empty


# All together

LISTENERS: dict[Kind, dict[str, list[str]]] = {
    PYTORCH: {"Master": ["master-0"], "Worker": []},
    TENSORFLOW: {"PS": ["ps-0"], "Worker": ["worker-0", "worker-1"], "Chief": ["chief-0"]},
    XGBOOST: {"Master": ["master-0"], "Worker": ["worker-0"]},
    PADDLE: {"Master": ["master-0"], "Worker": []},
    JAX: {"Worker": ["worker-0"]},
}
"""By role, the ranks to which earlier versions assigned ports, in jobs with two workers."""


@given(
    kind=st.sampled_from(sorted(LISTENERS, key=lambda kind: kind.name)),
    first_port=st.integers(20000, 30000),
    ends=st.lists(st.tuples(st.sampled_from(["fails", "is deleted", "is evicted"]), st.sets(st.integers(0, 3)))),
)
def test_all_ranks_agree_on_every_port_while_old_pods_live(
    kind: Kind, first_port: int, ends: list[tuple[str, set[int]]]
) -> None:
    keys = [key for listening in LISTENERS[kind].values() for key in listening]
    assigned = {f"old-{key}": first_port + number for number, key in enumerate(keys)}
    world = _upgraded(kind, assigned)
    before = dict(world.pods)
    world.settle("old")
    assert _uids(world.pods) == _uids(before), "no pod is replaced because of the upgrade"
    for end, chosen in ends:
        names = sorted(world.pods)
        ended = {names[number] for number in chosen if number < len(names)}
        staying = {name: pod for name, pod in world.pods.items() if name not in ended}
        for name in ended:
            _end(world, name, end)
        world.settle("old")
        assert _uids(staying).items() <= _uids(world.pods).items()
        _check_agreement(world, kind)


def _upgraded(kind: Kind, assigned: dict[str, int]) -> World:
    """A job whose pods and Services have been created by an earlier version."""
    builder = JobBuilder("old", kind=kind)
    for role in LISTENERS[kind]:
        builder.replica(role, 2 if role == "Worker" else 1, policy="OnFailure")
    world = World(EMBEDDED)
    world.put_job(builder.raw())
    text = ",".join(f"{name.removeprefix('old-')}={port}" for name, port in assigned.items())
    for obj in manifests(decide(builder)):
        name = obj["metadata"]["name"]
        if obj["kind"] == "Pod":
            obj["metadata"]["annotations"] = {PORTS: text, "old": json.dumps(assigned)}
        elif name in assigned:
            obj["metadata"]["annotations"] = {PORTS: f"{name.removeprefix('old-')}={assigned[name]}"}
            obj["spec"]["ports"] = [{"port": assigned[name]}]
        world.create(obj)
    return world


def _end(world: World, name: str, end: str) -> None:
    match end:
        case "fails":
            world.end_pod(name, 1)
        case "is evicted":
            world.evict_pod(name)
        case _:
            world.delete("pods", name, world.pods[name]["metadata"]["uid"])
            world.remove_pod(name)


def _check_agreement(world: World, kind: Kind) -> None:
    ports: dict[str, int] = {}
    for pod in world.pods.values():
        for name, port in _ports_known_to(pod, kind).items():
            assert ports.setdefault(name, port) == port, f"{pod['metadata']['name']} expects {name} at {port}"
    if not any(PORTS in _annotations(pod) for pod in world.pods.values()):
        assert set(ports.values()) == {kind.port}
        assert {one["spec"]["ports"][0]["port"] for one in world.services.values()} == {kind.port}


def _ports_known_to(pod: Object, kind: Kind) -> dict[str, int]:
    """The ports in the environment of a pod, by the name of the pod that listens, and the port that it exposes."""
    if assigned := _annotations(pod).get("old"):
        known: dict[str, int] = json.loads(assigned)
        return known
    (exposed,) = pod["spec"]["containers"][0]["ports"]
    known = {pod["metadata"]["name"]: exposed["containerPort"]}
    first = "old-worker-0" if kind is JAX else "old-master-0"
    for variable in pod["spec"]["containers"][0]["env"]:
        match variable["name"]:
            case "MASTER_PORT" | "COORDINATOR_PORT":
                known[first] = int(variable["value"])
            case "WORKER_PORT":
                known["old-worker-0"] = int(variable["value"])
            case "PADDLE_MASTER":
                known[first] = int(variable["value"].rpartition(":")[2])
            case "TF_CONFIG":
                for address in chain(*json.loads(variable["value"])["cluster"].values()):
                    host, _, port = address.partition(":")
                    known[host.partition(".")[0]] = int(port)
    return known


def _annotations(obj: Object) -> dict[str, str]:
    found: dict[str, str] = obj["metadata"].get("annotations") or {}
    return found


def _uids(pods: dict[str, Object]) -> dict[str, str]:
    return {name: pod["metadata"]["uid"] for name, pod in pods.items()}
