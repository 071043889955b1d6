"""`HostPorts`: assigns a port to every listener, because all pods share one machine. A listener gets its declared port
if that is free, so that a single job has the same ports as on any cluster."""

from collections.abc import Iterable
from itertools import chain

from trainwright.engine.assigned_ports import key_of
from trainwright.engine.builder import PlanBuilder
from trainwright.engine.children.ranks import Rank
from trainwright.engine.facts import Facts


def assign(facts: Facts, builder: PlanBuilder) -> bool:
    """Assigns missing ports and replaces ports that are taken. True if the assignment has changed."""
    taken = _ranks_with_taken_port(facts)
    assigned: dict[Rank, int] = {}
    # Pods of ranks that were removed from the job may still listen on their ports.
    unusable = facts.observed.taken_ports | set((builder.status.get("ports") or {}).values())
    for rank, declared in facts.ports.listeners.items():
        current = facts.ports.get(rank)
        if current is not None and rank not in taken:
            assigned[rank] = current
            continue
        port = _free_port(declared if current is None else current, facts.settings.port_range, unusable)
        if port is None:
            _warn_of_no_free_port(facts, builder, rank)
            return False
        assigned[rank] = port
        unusable |= {port}
    if assigned == facts.ports.by_rank:
        return False
    builder.put("ports", {key_of(facts.job, rank): port for rank, port in assigned.items()})
    return True


def are_assigned(facts: Facts) -> bool:
    """Whether pods can be created: every listener has a port, or the declared ports are used."""
    return facts.ports.listeners.keys() == facts.ports.by_rank.keys()


def _ranks_with_taken_port(facts: Facts) -> set[Rank]:
    return {
        rank
        for rank in facts.ports.by_rank
        if (pod := facts.children.pods.ranked.get(rank))
        and facts.ports.is_taken(rank, pod)
        and pod.metadata.uid not in facts.replaced
        and not facts.ports.is_outdated(pod.metadata, facts.framework.peers(facts.job, rank))
    }


def _free_port(wanted: int, others: range, unusable: Iterable[int]) -> int | None:
    """The wanted port, else the next free one above it, else the first free one of the range."""
    above = range(max(wanted + 1, others.start), others.stop)
    candidates = chain((wanted,), above, others)
    return next((port for port in candidates if port not in unusable), None)


def _warn_of_no_free_port(facts: Facts, builder: PlanBuilder, rank: Rank) -> None:
    ports, name = facts.settings.port_range, facts.job.child_name(rank.role, rank.index)
    builder.warn(
        "NoFreePort",
        f"No port from {ports.start} to {ports.stop - 1} is free for {name}: "
        "delete a job, or stop a program that uses one",
    )
    builder.requeue_soon()
