"""`HostPorts`: on one machine every listener needs a port of its own. The declared one is taken while it is free, so
that a single job sees what it would see anywhere."""

from collections.abc import Iterable
from itertools import chain

from trainwright.engine.draft import Draft


def choose(draft: Draft) -> bool:
    """Chooses ports that are missing or were lost; True if the choice is new and has to be recorded first."""
    if not draft.host_ports:
        return False
    listeners = draft.framework.listeners(draft.job)
    lost = _roles_without_port(draft)
    chosen: dict[str, int] = {}
    for role, declared in listeners.items():
        current = draft.ports.get(role)
        if current is not None and role not in lost:
            chosen[role] = current
            continue
        unusable = draft.observed.taken_ports | set(chosen.values()) | set(draft.ports.values())
        port = _free_port(declared if current is None else current, draft.settings.port_range, unusable)
        if port is None:
            _report_none_free(draft, role)
            return False
        chosen[role] = port
    if chosen == draft.ports:
        return False
    draft.put("ports", chosen)
    return True


def are_chosen(draft: Draft) -> bool:
    """Whether pods can be made: every listener has a port, or needs none of its own."""
    return not draft.host_ports or draft.framework.listeners(draft.job).keys() == draft.ports.keys()


def _roles_without_port(draft: Draft) -> set[str]:
    return {
        rank.role
        for rank, pod in draft.children.pods.items()
        if draft.lost_its_port(pod) and not draft.is_replaced(pod) and not draft.is_outdated(pod.metadata)
    }


def _free_port(wanted: int, others: range, unusable: Iterable[int]) -> int | None:
    """The wanted port, else the next one above it, else the first of the range."""
    above = range(max(wanted + 1, others.start), others.stop)
    candidates = chain((wanted,), above, others)
    return next((port for port in candidates if port not in unusable), None)


def _report_none_free(draft: Draft, role: str) -> None:
    ports = draft.settings.port_range
    draft.notice(
        "NoFreePort",
        f"No port from {ports.start} to {ports.stop - 1} is free for {role}: end a job or a program that listens there",
    )
    draft.look_again()
