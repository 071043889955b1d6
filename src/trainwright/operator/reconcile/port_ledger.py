"""The ports of a machine that are in use or reserved, where all pods share its network (addressing `HostPorts`).

The reconciler passes them to the engine, which assigns a free port to each listener.
"""

from collections.abc import Collection, Iterable

from trainwright.engine.conditions import is_finished
from trainwright.objects import Object
from trainwright.objects.decimals import parse_decimal
from trainwright.objects.metadata import ObjectMeta
from trainwright.objects.node_annotations import LISTENING_PORTS


class PortReservations:
    """Ports that plans in flight assign and no job's status shows yet, so that two plans never assign the same."""

    def __init__(self) -> None:
        self._ports: dict[str, frozenset[int]] = {}

    def reserve(self, uid: str, status: Object | None) -> None:
        """Reserves the ports in the new status of the job `uid` until `release`."""
        if ports := _assigned_ports(status):
            self._ports[uid] = ports

    def release(self, uid: str) -> None:
        self._ports.pop(uid, None)

    def taken(self, *, excluding: str) -> frozenset[int]:
        """The reservations of all jobs but the one with this uid."""
        return frozenset().union(*(ports for uid, ports in self._ports.items() if uid != excluding))


def ports_of_other_jobs(jobs: Iterable[Object], excluding: str, *, with_pods: Collection[str]) -> frozenset[int]:
    """The ports of all jobs but the one with the uid `excluding`.

    A finished job keeps its ports while it has unfinished pods: under cleanPodPolicy None they may still listen.
    `with_pods` has the uids of jobs with unfinished pods.
    """
    assigned = (
        _assigned_ports(job.get("status"))
        for job in jobs
        if (uid := job["metadata"].get("uid")) != excluding
        and (uid in with_pods or not is_finished(job.get("status") or {}))
    )
    return frozenset().union(*assigned)


def listening_ports(nodes: Iterable[ObjectMeta]) -> frozenset[int]:
    """The ports that the Nodes report in an annotation; malformed entries are ignored."""
    entries = (entry for node in nodes for entry in node.annotations.get(LISTENING_PORTS, "").split(","))
    return frozenset(port for entry in entries if (port := parse_decimal(entry.strip())) is not None)


def _assigned_ports(status: Object | None) -> frozenset[int]:
    return frozenset(((status or {}).get("ports") or {}).values())
