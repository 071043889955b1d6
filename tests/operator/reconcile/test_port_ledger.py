"""Bookkeeping of ports on a machine that all pods share."""

from hypothesis import given
from hypothesis import strategies as st

from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta
from trainwright.operator.reconcile.port_ledger import PortReservations, listening_ports, ports_of_others

uids = st.sampled_from(["a", "b", "c", "d"])
ports = st.integers(1024, 32767)


def job(uid: str, *held: int, finished: str | None = None) -> Object:
    conditions = [{"type": "Running", "status": "False"}]
    if finished:
        conditions.append({"type": finished, "status": "True"})
    return {
        "metadata": {"uid": uid},
        "status": {"ports": {f"Role{n}": port for n, port in enumerate(held)}, "conditions": conditions},
    }


@given(st.dictionaries(uids, st.sets(ports, min_size=1)), uids)
def test_a_reservation_binds_everybody_but_its_owner(reserved: dict[str, set[int]], owner: str) -> None:
    reservations = PortReservations()
    for uid, held in reserved.items():
        reservations.reserve(uid, job(uid, *held)["status"])

    others = set().union(*(held for uid, held in reserved.items() if uid != owner))
    assert reservations.taken(besides=owner) == others


def test_a_released_reservation_is_free_again() -> None:
    reservations = PortReservations()
    reservations.reserve("a", job("a", 23456)["status"])
    reservations.release("a")
    assert reservations.taken(besides="b") == frozenset()


def test_a_plan_that_chooses_no_ports_reserves_none() -> None:
    reservations = PortReservations()
    reservations.reserve("a", None)
    reservations.reserve("b", {"conditions": []})
    reservations.release("never reserved")
    assert reservations.taken(besides="c") == frozenset()


def test_ports_of_other_jobs_are_taken() -> None:
    jobs = [job("a", 23456), job("b", 23457, 23458), {"metadata": {"uid": "c"}}]
    assert ports_of_others(jobs, besides="a", live=()) == {23457, 23458}


def test_a_finished_job_gives_its_ports_back_when_its_last_pod_has_ended() -> None:
    jobs = [job("a", 23456, finished="Succeeded"), job("b", 23457, finished="Failed")]
    assert ports_of_others(jobs, besides="c", live=()) == frozenset()
    assert ports_of_others(jobs, besides="c", live={"b"}) == {23457}


def test_nodes_report_listeners_and_a_garbled_report_counts_for_what_it_still_says() -> None:
    def node(report: str) -> ObjectMeta:
        return ObjectMeta(annotations={"node.trainwright.dev/listening-ports": report})

    assert listening_ports([node("22,8080"), node(" 443, x,,-1"), ObjectMeta()]) == {22, 443, 8080}
