"""The labels and annotations that tie children to their job. Names and values are upstream's, other tools read them."""

from collections.abc import Mapping

from trainwright.api.job import Job
from trainwright.api.kinds import GROUP
from trainwright.api.labels import EARLIER_JOB_NAME, JOB_NAME, JOB_ROLE, OPERATOR_NAME, REPLICA_INDEX, REPLICA_TYPE
from trainwright.engine.ranks import Rank
from trainwright.objects.metadata import ObjectMeta
from trainwright.objects.selectors import format_labels

PORTS = "trainwright.dev/ports"
"""The ports that a child was made for; a child made for others than the job's present ones is out of date."""


def format_ports(ports: Mapping[str, int]) -> str:
    """Ports by role as the annotation `PORTS` says them."""
    return ",".join(f"{role}={port}" for role, port in sorted(ports.items()))


def is_labelled_for(job: Job, rank: Rank, child: ObjectMeta) -> bool:
    return all(child.labels.get(key) == value for key, value in rank_labels(job, rank).items())


def rank_labels(job: Job, rank: Rank) -> dict[str, str]:
    return {
        OPERATOR_NAME: job.kind.controller,
        JOB_NAME: job.name,
        REPLICA_TYPE: rank.role.lower(),
        REPLICA_INDEX: str(rank.index),
    }


def earlier_labels(job: Job, rank: Rank, *, master: bool) -> dict[str, str]:
    """What operators of earlier years put on pods: scripts and tutorials still select by it.

    The first generation named the framework in every key, the second did not.
    """
    name, role, index = job.kind.earlier_name, rank.role.lower(), str(rank.index)
    labels = {"group-name": GROUP, EARLIER_JOB_NAME: job.name, "replica-type": role, "replica-index": index}
    if master:
        labels["job-role"] = "master"
    if name:
        labels |= {
            "controller-name": f"{name}-operator",
            f"{name}-job-name": job.name,
            f"{name}-replica-type": role,
            f"{name}-replica-index": index,
        }
        if master:
            labels[f"{name}-job-role"] = "master"
    return labels


def modern_labels(earlier: Mapping[str, str], *, controller: str) -> dict[str, str]:
    """The labels of today for a child that has only those of the second generation."""
    keys = (JOB_NAME, REPLICA_TYPE, REPLICA_INDEX, JOB_ROLE)
    words = {key: key.partition("/")[2] for key in keys}
    return {OPERATOR_NAME: controller} | {key: earlier[word] for key, word in words.items() if word in earlier}


def role_selector(job: Job, role: str) -> str:
    """What `kubectl scale` and autoscalers find a role's pods by."""
    labels = rank_labels(job, Rank(role, 0))
    del labels[REPLICA_INDEX]
    return format_labels(labels)
