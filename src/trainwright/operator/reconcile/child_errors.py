"""Children that the API server will never accept: its error, with the field of the job that is to blame.

The CRD leaves pod templates open, so only the API server finds what is wrong inside them, when a pod is created.
"""

from trainwright.kube.client.errors import BadRequest, Invalid


def final_refusal(job_field: str, error: Exception) -> str | None:
    """What is wrong with a job whose child was refused; None if the same child may be accepted later."""
    return f"{job_field}: {error}" if _names_a_field(error) else None


def _names_a_field(error: Exception) -> bool:
    """True if the API server has decoded the object and rejects a field of it. The verdict of a webhook, a policy or a
    quota does not count: it may change although the job does not."""
    if isinstance(error, BadRequest):
        return " cannot be handled as a " in error.message
    if not isinstance(error, Invalid) or error.message.startswith("admission webhook"):
        return False
    return any(cause.field for cause in error.causes)
