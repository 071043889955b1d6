"""The labels and annotations that tie children to their job. Names and values are upstream's, other tools read them."""

from collections.abc import Mapping

from trainwright.api.job import Job
from trainwright.engine.ranks import Rank
from trainwright.objects.selectors import format_labels

OPERATOR_NAME = "training.kubeflow.org/operator-name"
JOB_NAME = "training.kubeflow.org/job-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"

PORTS = "trainwright.dev/ports"
"""The ports that a child was made for; a child made for others than the job's present ones is out of date."""


def format_ports(ports: Mapping[str, int]) -> str:
    """Ports by role as the annotation `PORTS` says them."""
    return ",".join(f"{role}={port}" for role, port in sorted(ports.items()))


def rank_labels(job: Job, rank: Rank) -> dict[str, str]:
    return {
        OPERATOR_NAME: job.kind.controller,
        JOB_NAME: job.name,
        REPLICA_TYPE: rank.role.lower(),
        REPLICA_INDEX: str(rank.index),
    }


def role_selector(job: Job, role: str) -> str:
    """What `kubectl scale` and autoscalers find a role's pods by."""
    labels = rank_labels(job, Rank(role, 0))
    del labels[REPLICA_INDEX]
    return format_labels(labels)
