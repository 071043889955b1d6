"""What a write of a child means for its job: the event that is recorded, the retry, and whether the error is permanent.

The CRD leaves pod templates open. So only the API server can find an error inside one, when it creates a pod.
"""

from dataclasses import dataclass

from trainwright.engine import JobEvent
from trainwright.kube.client.errors import Conflict, Invalid, NotFound, is_undecodable
from trainwright.kube.controller.outcome import Retry


@dataclass(frozen=True)
class WriteResult:
    """The result of one write of a plan: the event to record, if any, and why the write failed, if it did."""

    event: JobEvent | None = None
    failure: Retry | None = None
    job_error: str | None = None
    """What is wrong with the job, if a retry cannot succeed."""


class InvalidChild(Exception):  # noqa: N818 - named after Kubernetes' own Invalid
    """The API server never accepts a child as the job describes it. The message names the field."""


def permanent_error(job_field: str, error: Exception) -> str | None:
    """What is wrong with a job whose child was rejected; None if the same child may be accepted later."""
    return f"{job_field}: {error}" if _rejects_a_field(error) else None


def is_stale(error: Exception) -> bool:
    """True if the object of a patch has changed, was deleted, or was replaced by another of the same name: the API
    server reports another uid as a change of an immutable field."""
    if isinstance(error, Invalid):
        return any(cause.field == "metadata.uid" for cause in error.causes)
    return isinstance(error, NotFound | Conflict)


def _rejects_a_field(error: Exception) -> bool:
    """True if the API server has decoded the object and rejects a field of it. Rejections by a webhook, a policy or a
    quota are not permanent: they may end without a change of the job."""
    if not isinstance(error, Invalid) or error.message.startswith("admission webhook"):  # which can send any details
        return is_undecodable(error)
    return any(cause.field for cause in error.causes)


def successful_write(verb: str, kind: str, message: str, *, with_event: bool = True) -> WriteResult:
    return WriteResult(event=JobEvent("Normal", f"Successful{verb}{kind}", message) if with_event else None)


def in_message(kind: str) -> str:
    """A kind as upstream's messages spell it."""
    return kind.lower() if kind in {"Pod", "Service"} else kind


def failed_write(verb: str, kind: str, message: str, error: Exception) -> WriteResult:
    event = JobEvent("Warning", f"Failed{verb}{kind}", message)
    return WriteResult(event=event, failure=Retry.after(error, message))
