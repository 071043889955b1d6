"""Ports that are assigned to the listeners of a job: all of them in its status, and on each child those that it uses.

Keys are the ends of pod names (`worker-0`, `launcher`). Earlier versions used the name of a role (`Master`) as the key
of its first pod; that form is still read.
"""

from collections.abc import Iterable, Mapping

from trainwright.api.job import Job
from trainwright.engine.framework import Framework
from trainwright.engine.pod_outcome import PORT_TAKEN
from trainwright.engine.ranks import Rank
from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta
from trainwright.objects.node_annotations import LISTEN_PORTS
from trainwright.objects.pods import Pod

PORTS = "trainwright.dev/ports"
"""On children: the ports with which they were created. A child is outdated if one of them has changed since."""


def key_of(job: Job, rank: Rank) -> str:
    """The key of the rank in `status.ports` and in annotations."""
    return job.child_name(rank.role, rank.index).removeprefix(f"{job.name}-")


def read_ports(job: Job, framework: Framework, status: Object) -> dict[Rank, int]:
    """The ports in the status, without those of ranks that are no listeners any more."""
    return _by_rank(job, framework.listeners(job), status.get("ports") or {})


def format_ports(job: Job, ports: Mapping[Rank, int], ranks: Iterable[Rank]) -> str:
    """The ports of these ranks in the format of the annotation `PORTS`."""
    return ",".join(f"{key_of(job, rank)}={ports[rank]}" for rank in ranks if rank in ports)


def is_outdated(
    job: Job,
    framework: Framework,
    rank: Rank,
    child: ObjectMeta,
    ports: Mapping[Rank, int],
    *,
    own_port_only: bool = False,
) -> bool:
    """True if a port with which the child was created has changed. `own_port_only`: it does not use those of peers."""
    text = child.annotations.get(PORTS)
    if not text:
        return rank in ports if own_port_only else any(peer in ports for peer in framework.peers(job, rank))
    entries = (entry.rpartition("=") for entry in text.split(","))
    written = {key: int(number) for key, _, number in entries if number.isdecimal()}
    return any(ports.get(peer) != port for peer, port in _by_rank(job, framework.listeners(job), written).items())


def found_its_port_taken(pod: Pod, port: int | None) -> bool:
    """True if another program listens on the port that was assigned to the pod."""
    return (
        pod.status.reason == PORT_TAKEN and port is not None and pod.metadata.annotations.get(LISTEN_PORTS) == str(port)
    )


def _by_rank(job: Job, listeners: Iterable[Rank], written: Mapping[str, int]) -> dict[Rank, int]:
    found = {}
    for rank in listeners:
        port = written.get(key_of(job, rank))
        if port is None and rank.index == 0:
            port = written.get(rank.role)
        if port is not None:
            found[rank] = port
    return found
