"""The labels that the children of a PyTorchJob carry, written out once more: what users select by must not change."""


def service_labels(job: str, role: str, index: str) -> dict[str, str]:
    """A service selects its pod by these too."""
    return {
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": job,
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": index,
    }


def pod_labels(job: str, role: str, index: str) -> dict[str, str]:
    """With those of both earlier generations, which upstream has given up: a row of docs/compatibility.md."""
    master = {"training.kubeflow.org/job-role": "master", "job-role": "master", "pytorch-job-role": "master"}
    return {
        **service_labels(job, role, index),
        "group-name": "kubeflow.org",
        "job-name": job,
        "replica-type": role,
        "replica-index": index,
        "controller-name": "pytorch-operator",
        "pytorch-job-name": job,
        "pytorch-replica-type": role,
        "pytorch-replica-index": index,
        **(master if role == "master" else {}),
    }
