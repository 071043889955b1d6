"""The labels and conditions of a job, by default a PyTorchJob, as users see them, word for word.

They repeat the texts of training-operator v1.9 on purpose, so that a changed text fails a test.
"""

Condition = tuple[str, str, str, str]
"""Type, status, reason and message: all but the times."""

# Labels


def service_labels(job: str, role: str, index: str, kind: str = "PyTorchJob") -> dict[str, str]:
    """A Service selects its pod by these too."""
    return {
        "training.kubeflow.org/operator-name": f"{kind.lower()}-controller",
        "training.kubeflow.org/job-name": job,
        "training.kubeflow.org/replica-type": role,
        "training.kubeflow.org/replica-index": index,
    }


def pod_labels(
    job: str, role: str, index: str, kind: str = "PyTorchJob", *, master: bool | None = None
) -> dict[str, str]:
    """With those of both earlier generations, which upstream has dropped: a row of docs/compatibility.md. `master`: by
    default whether the role is called so."""
    labels = {
        **service_labels(job, role, index, kind),
        "group-name": "kubeflow.org",
        "job-name": job,
        "replica-type": role,
        "replica-index": index,
    }
    roles = ["training.kubeflow.org/job-role", "job-role"]
    if first := _FIRST_OPERATORS.get(kind):
        labels |= {
            "controller-name": f"{first}-operator",
            f"{first}-job-name": job,
            f"{first}-replica-type": role,
            f"{first}-replica-index": index,
        }
        roles.append(f"{first}-job-role")
    is_master = role == "master" if master is None else master
    return labels | (dict.fromkeys(roles, "master") if is_master else {})


_FIRST_OPERATORS = {"PyTorchJob": "pytorch", "TFJob": "tf"}
"""The kinds that had an operator of their own before all kinds had one, and its name for the framework."""


# Conditions


def created(job: str, kind: str = "PyTorchJob") -> Condition:
    return "Created", "True", f"{kind}Created", f"{kind} {job} is created."


def running(job: str, status: str = "True", kind: str = "PyTorchJob") -> Condition:
    """Of a job with a Master; False once the job has finished."""
    return "Running", status, f"{kind}Running", f"{kind} {job} is running."


def workers_running(job: str, namespace: str, status: str = "True", kind: str = "PyTorchJob") -> Condition:
    """Of a job without a Master."""
    return "Running", status, f"{kind}Running", f"{kind} {namespace}/{job} is running."


def restarting(job: str, role: str, kind: str = "PyTorchJob") -> Condition:
    message = f"{kind} {job} is restarting because 1 {role} replica(s) failed."
    return "Restarting", "True", f"{kind}Restarting", message


def suspended(job: str, kind: str = "PyTorchJob") -> Condition:
    return "Suspended", "True", f"{kind}Suspended", f"{kind} {job} is suspended."


def suspended_while_running(job: str, kind: str = "PyTorchJob") -> Condition:
    return "Running", "False", f"{kind}Suspended", f"{kind} {job} is suspended."


def resumed(job: str, kind: str = "PyTorchJob") -> Condition:
    return "Suspended", "False", f"{kind}Resumed", f"{kind} {job} is resumed."


def succeeded(job: str, kind: str = "PyTorchJob") -> Condition:
    """Of a job with a Master."""
    return "Succeeded", "True", f"{kind}Succeeded", f"{kind} {job} is successfully completed."


def workers_succeeded(job: str, namespace: str, kind: str = "PyTorchJob") -> Condition:
    """Of a job without a Master."""
    return "Succeeded", "True", f"{kind}Succeeded", f"{kind} {namespace}/{job} successfully completed."


def failed(message: str, kind: str = "PyTorchJob") -> Condition:
    return "Failed", "True", f"{kind}Failed", message


def past_backoff_limit(job: str, kind: str = "PyTorchJob") -> Condition:
    return failed(f"Job {job} has failed because it has reached the specified backoff limit", kind)


def past_deadline(job: str, kind: str = "PyTorchJob") -> Condition:
    return failed(f"Job {job} has failed because it was active longer than specified deadline", kind)


def replicas_failed(job: str, role: str, number: int = 1, kind: str = "PyTorchJob") -> Condition:
    """Under the restart policy Never."""
    return failed(f"{kind} {job} is failed because {number} {role} replica(s) failed.", kind)


def permanent_exit_code(job: str, role: str, kind: str = "PyTorchJob") -> Condition:
    """Under the restart policy ExitCode."""
    return failed(f'job "{job}" is failing because "{role}" replica(s) failed.', kind)
