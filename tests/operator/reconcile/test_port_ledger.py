"""The ports that are taken on a machine whose network all pods share."""

from hypothesis import given
from hypothesis import strategies as st

from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta
from trainwright.operator.reconcile.port_ledger import PortReservations, listening_ports, ports_of_other_jobs

uids = st.sampled_from(["a", "b", "c", "d"])
ports = st.integers(1024, 32767)


def job(uid: str, *assigned: int, finished: str | None = None) -> Object:
    conditions = [{"type": "Running", "status": "False"}]
    if finished:
        conditions.append({"type": finished, "status": "True"})
    return {
        "metadata": {"uid": uid},
        "status": {"ports": {f"Role{n}": port for n, port in enumerate(assigned)}, "conditions": conditions},
    }


@given(st.dictionaries(uids, st.sets(ports, min_size=1)), uids)
def test_reserved_port_is_taken_for_all_jobs_but_its_own(reserved: dict[str, set[int]], owner: str) -> None:
    reservations = PortReservations()
    for uid, chosen in reserved.items():
        reservations.reserve(uid, job(uid, *chosen)["status"])

    others = set().union(*(chosen for uid, chosen in reserved.items() if uid != owner))
    assert reservations.taken(excluding=owner) == others


def test_released_port_is_free_again() -> None:
    reservations = PortReservations()
    reservations.reserve("a", job("a", 23456)["status"])
    reservations.release("a")
    assert reservations.taken(excluding="b") == frozenset()


def test_plan_without_ports_reserves_none() -> None:
    reservations = PortReservations()
    reservations.reserve("a", None)
    reservations.reserve("b", {"conditions": []})
    reservations.release("never reserved")
    assert reservations.taken(excluding="c") == frozenset()


def test_ports_of_other_jobs_are_taken() -> None:
    jobs = [job("a", 23456), job("b", 23457, 23458), {"metadata": {"uid": "c"}}]
    assert ports_of_other_jobs(jobs, "a", with_pods=()) == {23457, 23458}


def test_finished_job_keeps_its_ports_while_it_has_unfinished_pods() -> None:
    jobs = [job("a", 23456, finished="Succeeded"), job("b", 23457, finished="Failed")]
    assert ports_of_other_jobs(jobs, "c", with_pods=()) == frozenset()
    assert ports_of_other_jobs(jobs, "c", with_pods={"b"}) == {23457}


def test_listening_ports_of_nodes_ignore_malformed_entries() -> None:
    def node(report: str) -> ObjectMeta:
        return ObjectMeta(annotations={"node.trainwright.dev/listening-ports": report})

    assert listening_ports([node("22,8080"), node(" 443, x,,-1"), ObjectMeta()]) == {22, 443, 8080}
