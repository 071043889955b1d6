"""The labels and conditions of a PyTorchJob as users see them, word for word.

They repeat the texts of training-operator v1.9 on purpose, so that a changed text fails a test.
"""

Condition = tuple[str, str, str, str]
"""Type, status, reason and message: all but the times."""

# Labels


def service_labels(job: str, role: str, index: str) -> dict[str, str]:
    """A Service selects its pod by these too."""
    return {
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": job,
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": index,
    }


def pod_labels(job: str, role: str, index: str) -> dict[str, str]:
    """With those of both earlier generations, which upstream has dropped: a row of docs/compatibility.md."""
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


# Conditions


def created(job: str) -> Condition:
    return "Created", "True", "PyTorchJobCreated", f"PyTorchJob {job} is created."


def running(job: str, status: str = "True") -> Condition:
    """Of a job with a Master; False once the job has finished."""
    return "Running", status, "PyTorchJobRunning", f"PyTorchJob {job} is running."


def workers_running(job: str, namespace: str, status: str = "True") -> Condition:
    """Of a job without a Master."""
    return "Running", status, "PyTorchJobRunning", f"PyTorchJob {namespace}/{job} is running."


def restarting(job: str, role: str) -> Condition:
    message = f"PyTorchJob {job} is restarting because 1 {role} replica(s) failed."
    return "Restarting", "True", "PyTorchJobRestarting", message


def suspended(job: str) -> Condition:
    return "Suspended", "True", "PyTorchJobSuspended", f"PyTorchJob {job} is suspended."


def suspended_while_running(job: str) -> Condition:
    return "Running", "False", "PyTorchJobSuspended", f"PyTorchJob {job} is suspended."


def resumed(job: str) -> Condition:
    return "Suspended", "False", "PyTorchJobResumed", f"PyTorchJob {job} is resumed."


def succeeded(job: str) -> Condition:
    """Of a job with a Master."""
    return "Succeeded", "True", "PyTorchJobSucceeded", f"PyTorchJob {job} is successfully completed."


def workers_succeeded(job: str, namespace: str) -> Condition:
    """Of a job without a Master."""
    return "Succeeded", "True", "PyTorchJobSucceeded", f"PyTorchJob {namespace}/{job} successfully completed."


def failed(message: str) -> Condition:
    return "Failed", "True", "PyTorchJobFailed", message


def past_backoff_limit(job: str) -> Condition:
    return failed(f"Job {job} has failed because it has reached the specified backoff limit")


def past_deadline(job: str) -> Condition:
    return failed(f"Job {job} has failed because it was active longer than specified deadline")


def replicas_failed(job: str, role: str, number: int = 1) -> Condition:
    """Under the restart policy Never."""
    return failed(f"PyTorchJob {job} is failed because {number} {role} replica(s) failed.")


def permanent_exit_code(job: str, role: str) -> Condition:
    """Under the restart policy ExitCode."""
    return failed(f'job "{job}" is failing because "{role}" replica(s) failed.')
