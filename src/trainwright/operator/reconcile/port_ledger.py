"""Which ports of a shared machine are spoken for, when all pods listen on the same network (addressing `HostPorts`).

Pure bookkeeping: the operator tells it of plans in flight, and hands its answer to the engine, which chooses.
"""

from collections.abc import Collection, Iterable

from trainwright.engine.conditions import is_finished
from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta
from trainwright.objects.node_annotations import LISTENING_PORTS


class PortReservations:
    """Ports that plans have chosen but no job shows yet, so that two plans in flight never choose the same."""

    def __init__(self) -> None:
        self._ports: dict[str, frozenset[int]] = {}

    def reserve(self, uid: str, status: Object | None) -> None:
        """Holds what the new status of job `uid` chooses until `release`."""
        if ports := ports_in(status):
            self._ports[uid] = ports

    def release(self, uid: str) -> None:
        self._ports.pop(uid, None)

    def taken(self, *, besides: str) -> frozenset[int]:
        """What everybody but job `besides` has reserved."""
        return frozenset().union(*(ports for uid, ports in self._ports.items() if uid != besides))


def ports_in(status: Object | None) -> frozenset[int]:
    """The ports that a job's status says it was given."""
    return frozenset(((status or {}).get("ports") or {}).values())


def ports_of_others(jobs: Iterable[Object], *, besides: str, live: Collection[str]) -> frozenset[int]:
    """The ports of all jobs but `besides`. A finished job gives its ports back when it is not among the `live` ones,
    the uids of jobs with unfinished pods: under cleanPodPolicy None they go on listening."""
    held = (
        ports_in(job.get("status"))
        for job in jobs
        if (uid := job["metadata"].get("uid")) != besides and (uid in live or not is_finished(job.get("status") or {}))
    )
    return frozenset().union(*held)


def listening_ports(nodes: Iterable[ObjectMeta]) -> frozenset[int]:
    """What the Nodes report. An annotation that somebody garbled counts for the numbers that it still holds."""
    words = (word for node in nodes for word in node.annotations.get(LISTENING_PORTS, "").split(","))
    return frozenset(int(word) for word in map(str.strip, words) if word.isdecimal())
