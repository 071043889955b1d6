"""Compatibility with earlier versions, which assigned ports to the pods of the embedded cluster.

The annotation `PORTS` of such a pod has the ports that it expects of itself and its peers. A new pod uses the same
ports while one of these pods runs; otherwise all pods use the declared ports.
"""

from collections.abc import Iterable, Mapping

from trainwright.api.job import Job
from trainwright.engine.addressing import declared_port
from trainwright.engine.children.ranks import Rank
from trainwright.objects.decimals import parse_decimal
from trainwright.objects.kinds.pods import Pod
from trainwright.objects.metadata import ObjectMeta

PORTS = "trainwright.dev/ports"
"""On pods and Services: ports by the ends of pod names, such as `master-0=20001,worker-0=2222`."""


def inherited_ports(job: Job, pods: Iterable[Pod]) -> dict[Rank, int]:
    """The ports that pods of an earlier version, and pods that were created beside them, expect of each rank.

    Pods that have finished or are being deleted have no say. If others disagree, the newest decides.
    """
    annotated = [pod for pod in pods if PORTS in pod.metadata.annotations]
    living = [pod for pod in annotated if not (pod.finished or pod.metadata.terminating)]
    if not living:
        return {}
    ranks = [Rank(role, index) for role, replica in job.replicas.items() for index in range(replica.count)]
    # The first versions named the first pod of a role by the role alone.
    by_key = {role: Rank(role, 0) for role in job.replicas} | {_key(job, rank): rank for rank in ranks}
    ports: dict[Rank, int] = {}
    for pod in sorted(living, key=lambda pod: pod.metadata.creation_timestamp or ""):
        for entry in pod.metadata.annotations[PORTS].split(","):
            key, _, number = entry.partition("=")
            port = parse_decimal(number) or 0
            if key in by_key and 0 < port < 65536:
                ports[by_key[key]] = port
    return ports


def format_ports(job: Job, ports: Mapping[Rank, int]) -> str:
    """The value of the annotation `PORTS`."""
    return ",".join(f"{_key(job, rank)}={port}" for rank, port in ports.items())


def has_outdated_port(job: Job, rank: Rank, service: ObjectMeta) -> bool:
    """True if the Service was created with another port than the declared one."""
    text = service.annotations.get(PORTS)
    return text is not None and text != format_ports(job, {rank: declared_port(job, rank.role)})


def _key(job: Job, rank: Rank) -> str:
    return job.child_name(rank.role, rank.index).removeprefix(f"{job.name}-")
