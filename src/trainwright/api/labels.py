"""The label keys of kubeflow.org that tie pods and Services to their job. Users and other tools select by them."""

from collections.abc import Mapping

OPERATOR_NAME = "training.kubeflow.org/operator-name"
JOB_NAME = "training.kubeflow.org/job-name"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"
JOB_ROLE = "training.kubeflow.org/job-role"

EARLIER_JOB_NAME = "job-name"
"""The key of JOB_NAME before keys had a prefix."""


def rank_of(labels: Mapping[str, str], pod: str) -> str:
    """`worker-0`, or `launcher` for a role without index, by the labels of a pod; its name if it lacks them."""
    if REPLICA_TYPE not in labels:
        return pod
    index = labels.get(REPLICA_INDEX)
    return labels[REPLICA_TYPE] if index is None else f"{labels[REPLICA_TYPE]}-{index}"
