"""Assigned ports by rank, in the status and on children, and in the form of earlier versions."""

from tests.support.objects.jobs import JobBuilder, PodBuilder
from tests.support.objects.orchestra import ORCHESTRA, Orchestra
from trainwright.engine.assigned_ports import NO_PORTS, PORTS, AssignedPorts, format_ports, key_of
from trainwright.engine.children.ranks import Rank
from trainwright.engine.frameworks.pytorch import PyTorch
from trainwright.objects.node_annotations import LISTEN_PORTS

MASTER, VIOLIN = Rank("Master", 0), Rank("Violin", 1)
CONCERT = JobBuilder("ninth", kind=ORCHESTRA).replica("Conductor").replica("Violin", 2).job()


def test_key_of_a_rank_is_its_pod_name_without_the_job() -> None:
    assert key_of(CONCERT, VIOLIN) == "violin-1"
    assert key_of(CONCERT, Rank("Conductor", 0)) == "conductor"


def assigned(builder: JobBuilder, **ports: int) -> AssignedPorts:
    written = {key.replace("_", "-"): port for key, port in ports.items()}
    framework = Orchestra() if builder.kind is ORCHESTRA else PyTorch()
    return AssignedPorts.read(builder.status({"ports": written}).job(), framework)


def digits() -> JobBuilder:
    return JobBuilder().master().workers(2)


def ninth() -> JobBuilder:
    return JobBuilder("ninth", kind=ORCHESTRA).replica("Conductor").replica("Violin", 2)


def test_ports_are_read_by_rank_and_in_the_earlier_form_by_role() -> None:
    assert assigned(digits(), master_0=23456).by_rank == {MASTER: 23456}
    assert assigned(digits(), Master=23456).by_rank == {MASTER: 23456}
    assert assigned(digits(), master_0=23456, Master=1, worker_7=2).by_rank == {MASTER: 23456}
    assert assigned(ninth(), Violin=1, violin_1=2).by_rank == {Rank("Violin", 0): 1, VIOLIN: 2}
    assert assigned(ninth()).by_rank == {}
    assert assigned(ninth()).listeners == {Rank("Violin", 0): 4711, VIOLIN: 4711}


def test_only_assigned_ports_are_formatted() -> None:
    ranks = [Rank("Violin", index) for index in range(3)]
    assert format_ports(CONCERT, assigned(ninth(), violin_0=1, violin_1=2), ranks) == "violin-0=1,violin-1=2"
    assert format_ports(CONCERT, NO_PORTS, ranks) == ""


def test_child_is_outdated_if_a_port_that_it_uses_has_changed() -> None:
    def outdated(text: str, **ports: int) -> bool:
        pod = PodBuilder("Worker").annotation(PORTS, text).pod()
        return assigned(digits(), **ports).is_outdated(pod.metadata, [MASTER])

    for form in ("master-0=1", "Master=1"):
        assert [outdated(form, master_0=1), outdated(form, master_0=2), outdated(form)] == [False, True, True]
    assert [outdated("", master_0=1), outdated("")] == [True, False]
    assert not outdated("worker-5=1,garbage,master-0=x", master_0=1)


def test_every_port_of_a_child_counts() -> None:
    pod = PodBuilder("Worker").annotation(PORTS, "master-0=1,worker-0=2").pod()
    elastic = digits().spec(elasticPolicy={})
    assert not assigned(elastic, master_0=1, worker_0=2).is_outdated(pod.metadata, [])
    assert assigned(elastic, master_0=1, worker_0=3).is_outdated(pod.metadata, [])


def test_child_without_ports_is_outdated_if_it_should_have_some() -> None:
    metadata = PodBuilder("Worker").pod().metadata
    assert not assigned(digits(), master_0=1).is_outdated(metadata, [Rank("Worker", 0)])
    assert assigned(digits(), master_0=1).is_outdated(metadata, [MASTER])


def test_where_declared_ports_are_used_no_child_is_outdated() -> None:
    pod = PodBuilder("Worker").annotation(PORTS, "master-0=1").pod()
    assert not NO_PORTS.is_outdated(pod.metadata, [MASTER])


def test_port_is_taken_if_the_pod_failed_with_its_assigned_port() -> None:
    pod = PodBuilder("Master").failed(None).reason("PortTaken").annotation(LISTEN_PORTS, "23456").pod()
    assert assigned(digits(), master_0=23456).is_taken(MASTER, pod)
    assert not assigned(digits(), master_0=23457).is_taken(MASTER, pod)
    assert not NO_PORTS.is_taken(MASTER, pod)
    other = PodBuilder("Master").failed(1).annotation(LISTEN_PORTS, "23456").pod()
    assert not assigned(digits(), master_0=23456).is_taken(MASTER, other)
