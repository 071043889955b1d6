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
    """`worker-0`, by the labels of a pod; its name if it lacks them."""
    if REPLICA_TYPE in labels and REPLICA_INDEX in labels:
        return f"{labels[REPLICA_TYPE]}-{labels[REPLICA_INDEX]}"
    return pod
