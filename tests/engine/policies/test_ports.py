"""HostPorts: every listener on the machine is assigned a port before the first pod is created."""

import pytest

from tests.support.engine.planning import STARTED, child, created, decide, deleted, env, events, standing_events, states
from tests.support.objects.jobs import JobBuilder, PodBuilder, at, service, template, view_service
from trainwright.engine import EMBEDDED, Addressing, Plan, ServiceView, Settings
from trainwright.objects import Object

LISTEN_PORTS = "node.trainwright.dev/listen-ports"
REPLICAS = "node.trainwright.dev/replicas"
FEW = Settings(addressing=Addressing.HOST_PORTS, port_range=range(20000, 20003))


def job(status: Object | None = None) -> JobBuilder:
    return JobBuilder().master().workers(1).status(status)


def assigned(made: Plan) -> Object:
    assert made.status is not None
    ports: Object = made.status["ports"]
    return ports


def status_with(port: int) -> Object:
    made = decide(job(), settings=EMBEDDED)
    return {**(made.status or {}), "ports": {"master-0": port}}


def pod(role: str, port: int) -> PodBuilder:
    built = PodBuilder(role, 0).annotation("trainwright.dev/ports", f"master-0={port}")
    return built.annotation(LISTEN_PORTS, str(port)) if role == "Master" else built


def services(port: int) -> list[ServiceView]:
    made = [service("Master", 0), service("Worker", 0)]
    for one in made:
        one["metadata"]["annotations"] = {"trainwright.dev/ports": f"master-0={port}"}
    return [view_service(one) for one in made]


def test_declared_port_is_assigned_while_it_is_free() -> None:
    made = decide(job(), settings=EMBEDDED)
    assert assigned(made) == {"master-0": 23456}
    assert (made.creates, made.deletes) == ((), ()), "the port is recorded before the first pod is created"
    assert states(made) == [("Created", "True")]


def test_port_taken_for_another_port_is_a_failure() -> None:
    """Another assigned port would not help, and the pod has to be replaced."""
    taken = pod("Worker", 23456).annotation(LISTEN_PORTS, "8080").failed(None).reason("PortTaken")
    made = decide(job(status_with(23456)), taken, settings=EMBEDDED)
    assert assigned(made) == {"master-0": 23456}
    assert deleted(made) == ["digits-worker-0"]
    assert states(made)[-1] == ("Restarting", "True")


def test_failed_listener_keeps_its_assigned_port() -> None:
    made = decide(job(status_with(23456)), pod("Master", 23456).failed(137), settings=EMBEDDED)
    assert assigned(made) == {"master-0": 23456}
    assert made.status is not None
    assert made.status["restarts"] == {"Master": 1}


def test_ports_annotation_in_the_template_is_ignored() -> None:
    """With it the pods would be outdated at once, and for ever."""
    copied = {**template(), "metadata": {"annotations": {"trainwright.dev/ports": "worker-0=1", "mine": "1"}}}
    builder = JobBuilder().workers(1, pod=copied).spec(elasticPolicy={"rdzvHost": "elsewhere"})
    made = child(decide(builder, settings=EMBEDDED), "digits-worker-0")
    assert made["metadata"]["annotations"] == {"mine": "1", REPLICAS: "1"}


def test_next_free_port_is_assigned_if_the_declared_one_is_taken() -> None:
    assert assigned(decide(job(), settings=EMBEDDED, taken={23456, 23457})) == {"master-0": 23458}


def test_port_of_the_range_is_assigned_if_the_declared_one_is_outside_of_it() -> None:
    own = {"name": "pytorchjob-port", "containerPort": 80}
    builder = JobBuilder().master(pod=template(ports=[own]))
    assert assigned(decide(builder, settings=EMBEDDED)) == {"master-0": 80}
    assert assigned(decide(builder, settings=EMBEDDED, taken={80})) == {"master-0": 20000}


def test_pods_and_services_have_the_assigned_port() -> None:
    made = decide(job(status_with(23460)), settings=EMBEDDED)
    master, worker = child(made, "digits-master-0"), child(made, "digits-worker-0")
    assert master["metadata"]["annotations"] == {
        "trainwright.dev/ports": "master-0=23460",
        LISTEN_PORTS: "23460",
        REPLICAS: "2",
    }
    assert worker["metadata"]["annotations"] == {"trainwright.dev/ports": "master-0=23460", REPLICAS: "2"}
    assert master["spec"]["containers"][0]["ports"] == [{"name": "pytorchjob-port", "containerPort": 23460}]
    assert worker["spec"]["containers"][0]["ports"] == [{"name": "pytorchjob-port", "containerPort": 23456}]
    assert dict(env(worker))["MASTER_PORT"] == "23460"
    assert child(made, "digits-master-0", "Service")["spec"]["ports"] == [{"name": "pytorchjob-port", "port": 23460}]


def test_a_running_job_keeps_its_port_although_the_node_reports_it_as_taken() -> None:
    running = [pod("Master", 23456).running(), pod("Worker", 23456).running()]
    first = decide(job(status_with(23456)), *running, services=services(23456), settings=EMBEDDED, taken={23456})
    assert assigned(first) == {"master-0": 23456}
    assert first.deletes == ()
    assert decide(job(first.status), *running, services=services(23456), settings=EMBEDDED, taken={23456}).empty


def test_taken_port_is_replaced_and_no_restart_is_counted() -> None:
    builder = job(status_with(23456)).run_policy(backoffLimit=0)
    taken = [pod("Master", 23456).failed(None).reason("PortTaken"), pod("Worker", 23456).running()]
    first = decide(builder, *taken, services=services(23456), settings=EMBEDDED)
    assert assigned(first) == {"master-0": 23457}
    assert (first.creates, first.deletes, first.events) == ((), (), ())
    second = decide(builder.status(first.status), *taken, services=services(23456), settings=EMBEDDED)
    assert deleted(second) == ["digits-master-0", "digits-worker-0"]
    assert deleted(second, "services") == ["digits-master-0", "digits-worker-0"]
    assert events(second) == []
    third = decide(builder.status(second.status or first.status), settings=EMBEDDED)
    assert created(third) == ["digits-master-0", "digits-worker-0"]
    assert third.status is None or "restarts" not in third.status
    assert dict(env(child(third, "digits-worker-0")))["MASTER_PORT"] == "23457"


@pytest.mark.parametrize("policy", ["OnFailure", "Never", "ExitCode"])
def test_failure_after_the_port_of_a_peer_was_taken_is_not_counted(policy: str) -> None:
    builder = JobBuilder().master().workers(1, policy=policy).run_policy(backoffLimit=0).status(status_with(23456))
    taken = [pod("Master", 23456).failed(None).reason("PortTaken"), pod("Worker", 23456).failed(1)]
    first = decide(builder, *taken, services=services(23456), settings=EMBEDDED)
    assert assigned(first) == {"master-0": 23457}
    second = decide(builder.status(first.status), *taken, services=services(23456), settings=EMBEDDED)
    assert deleted(second) == ["digits-master-0", "digits-worker-0"]
    assert events(second) == []
    assert second.status is None or "restarts" not in second.status


def test_finished_rank_is_not_started_again_for_another_port() -> None:
    done = [pod("Master", 23456).failed(None).reason("PortTaken"), pod("Worker", 23456).succeeded()]
    made = decide(job(status_with(23457)), *done, settings=EMBEDDED)
    assert deleted(made) == ["digits-master-0"]


def test_search_for_a_free_port_continues_at_the_start_of_the_range() -> None:
    taken = pod("Master", 20002).failed(None).reason("PortTaken")
    assert assigned(decide(job(status_with(20002)), taken, settings=FEW, taken={20000})) == {"master-0": 20001}


def test_job_without_a_free_port_waits_and_reports_it() -> None:
    made = decide(job(), settings=FEW, taken={23456, 20000, 20001, 20002})
    assert standing_events(made) == [
        (
            "NoFreePort",
            "No port from 20000 to 20002 is free for digits-master-0: delete a job, or stop a program that uses one",
        )
    ]
    assert made.requeue_at == at(5)
    assert made.creates == ()
    assert assigned(decide(job(made.status), settings=FEW, taken={20000})) == {"master-0": 23456}


def test_a_job_that_waits_for_a_port_still_has_a_deadline() -> None:
    builder = job().run_policy(activeDeadlineSeconds=10)
    first = decide(builder, settings=FEW, taken={23456, 20000, 20001, 20002})
    late = decide(builder.status(first.status), settings=FEW, taken={23456, 20000, 20001, 20002}, now=at(10))
    assert states(late)[-1] == ("Failed", "True")


def test_first_elastic_worker_is_the_listener() -> None:
    builder = JobBuilder().workers(2).spec(elasticPolicy={"rdzvPort": 29400})
    first = decide(builder, settings=EMBEDDED, taken={29400})
    assert assigned(first) == {"worker-0": 29401}
    made = decide(builder.status(first.status), settings=EMBEDDED)
    assert dict(env(child(made, "digits-worker-1")))["PET_RDZV_ENDPOINT"] == "digits-worker-0:29401"
    zero, one = child(made, "digits-worker-0"), child(made, "digits-worker-1")
    assert zero["metadata"]["annotations"]["node.trainwright.dev/listen-ports"] == "29401"
    assert "node.trainwright.dev/listen-ports" not in one["metadata"]["annotations"]
    assert zero["spec"]["containers"][0]["ports"] == [{"name": "pytorchjob-port", "containerPort": 23456}]


def test_master_and_rendezvous_of_one_job_get_two_ports() -> None:
    builder = JobBuilder().master().workers(1).spec(elasticPolicy={})
    first = decide(builder, settings=EMBEDDED)
    assert assigned(first) == {"master-0": 23456, "worker-0": 23457}
    second = decide(builder.status(first.status), settings=EMBEDDED)
    assert created(second) == ["digits-master-0", "digits-worker-0"], "the assignment does not change"
    own = {"trainwright.dev/ports": "worker-0=23457"}
    assert child(second, "digits-worker-0", "Service")["metadata"]["annotations"] == own


def test_job_with_an_external_rendezvous_has_no_listener() -> None:
    builder = JobBuilder().workers(1).spec(elasticPolicy={"rdzvHost": "etcd", "rdzvPort": 2379})
    made = decide(builder, settings=EMBEDDED)
    assert created(made) == ["digits-worker-0"]
    assert made.status is not None
    assert "ports" not in made.status
    there = decide(builder.status(made.status), PodBuilder("Worker", 0), settings=EMBEDDED)
    assert deleted(there) == [], "no ports are assigned, and it was created without"


def test_no_port_is_assigned_with_cluster_dns() -> None:
    made = decide(job(), PodBuilder("Master").failed(None).reason("PortTaken"))
    assert made.status is not None
    assert "ports" not in made.status
    assert made.status["restarts"] == {"Master": 1}


def test_a_pod_that_lost_its_port_is_no_failure_while_no_other_is_free() -> None:
    status = {**(decide(job(), settings=FEW).status or {}), "ports": {"master-0": 20000}}
    lost = pod("Master", 20000).failed(None).reason("PortTaken")
    made = decide(job(status), lost, settings=FEW, taken={20000, 20001, 20002})
    assert standing_events(made)[0][0] == "NoFreePort"
    assert made.status is None or "Restarting" not in {kind for kind, _ in states(made)}


def test_where_addresses_come_from_dns_an_annotation_about_ports_means_nothing() -> None:
    made = decide(job(STARTED), pod("Master", 1).failed(1), PodBuilder("Worker").running())
    assert deleted(made) == ["digits-master-0"]
    assert states(made)[-1] == ("Restarting", "True")
