"""Assigned ports by rank, in the status and on children, and in the form of earlier versions."""

from tests.support.objects.jobs import JobBuilder, PodBuilder
from tests.support.objects.orchestra import ORCHESTRA, Orchestra
from trainwright.engine.assigned_ports import PORTS, format_ports, found_its_port_taken, is_outdated, key_of, read_ports
from trainwright.engine.frameworks.pytorch import PyTorch
from trainwright.engine.ranks import Rank
from trainwright.objects.node_annotations import LISTEN_PORTS

MASTER, VIOLIN = Rank("Master", 0), Rank("Violin", 1)
JOB = JobBuilder().master().workers(2).job()
CONCERT = JobBuilder("ninth", kind=ORCHESTRA).replica("Conductor").replica("Violin", 2).job()


def test_key_of_a_rank_is_its_pod_name_without_the_job() -> None:
    assert key_of(CONCERT, VIOLIN) == "violin-1"
    assert key_of(CONCERT, Rank("Conductor", 0)) == "conductor"


def test_ports_are_read_by_rank_and_in_the_earlier_form_by_role() -> None:
    for written in ({"master-0": 23456}, {"Master": 23456}, {"master-0": 23456, "Master": 1, "worker-7": 2}):
        assert read_ports(JOB, PyTorch(), {"ports": written}) == {MASTER: 23456}
    assert read_ports(CONCERT, Orchestra(), {"ports": {"Violin": 1, "violin-1": 2}}) == {
        Rank("Violin", 0): 1,
        VIOLIN: 2,
    }
    assert read_ports(CONCERT, Orchestra(), {}) == {}


def test_only_assigned_ports_are_formatted() -> None:
    ranks = [Rank("Violin", index) for index in range(3)]
    assert format_ports(CONCERT, {ranks[0]: 1, ranks[1]: 2}, ranks) == "violin-0=1,violin-1=2"
    assert format_ports(CONCERT, {}, ranks) == ""


def test_child_is_outdated_if_a_port_that_it_uses_has_changed() -> None:
    def outdated(text: str, port: int | None) -> bool:
        pod = PodBuilder("Worker").annotation(PORTS, text).pod()
        ports = {} if port is None else {MASTER: port}
        return is_outdated(JOB, PyTorch(), Rank("Worker", 0), pod.metadata, ports)

    for form in ("master-0=1", "Master=1"):
        assert [outdated(form, port) for port in (1, 2, None)] == [False, True, True]
    assert [outdated("", port) for port in (1, None)] == [True, False]
    assert [outdated("worker-5=1,garbage,master-0=x", port) for port in (1, None)] == [False, False]


def test_child_that_uses_only_its_own_port_is_not_outdated_by_others() -> None:
    metadata = PodBuilder("Worker").pod().metadata
    assert not is_outdated(JOB, PyTorch(), Rank("Worker", 0), metadata, {MASTER: 1}, own_port_only=True)
    assert is_outdated(JOB, PyTorch(), MASTER, metadata, {MASTER: 1}, own_port_only=True)


def test_port_is_taken_if_the_pod_failed_with_its_assigned_port() -> None:
    pod = PodBuilder("Master").failed(None).reason("PortTaken").annotation(LISTEN_PORTS, "23456").pod()
    assert found_its_port_taken(pod, 23456)
    assert not found_its_port_taken(pod, 23457)
    assert not found_its_port_taken(pod, None)
    assert not found_its_port_taken(PodBuilder("Master").failed(1).annotation(LISTEN_PORTS, "23456").pod(), 23456)


def test_every_port_of_a_child_counts() -> None:
    job = JobBuilder().master().workers(1).spec(elasticPolicy={}).job()
    pod = PodBuilder("Worker").annotation(PORTS, "master-0=1,worker-0=2").pod()
    worker = Rank("Worker", 0)
    changed = [is_outdated(job, PyTorch(), worker, pod.metadata, {MASTER: 1, worker: port}) for port in (2, 3)]
    assert changed == [False, True]


def test_a_child_without_ports_is_outdated_if_it_should_have_some() -> None:
    metadata = PodBuilder("Violin", 1, job="ninth", kind=ORCHESTRA).pod().metadata
    assert is_outdated(CONCERT, Orchestra(), VIOLIN, metadata, {VIOLIN: 1})
    assert not is_outdated(CONCERT, Orchestra(), VIOLIN, metadata, {Rank("Violin", 0): 1})
