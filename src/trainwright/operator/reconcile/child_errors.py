"""Children that the API server will never take: what it says against them, with the field of the job that is to blame.

The CRD leaves pod templates open, so only the server can tell what is wrong inside them, once it is asked for a pod.
"""

from trainwright.api.kinds import Kind
from trainwright.api.labels import REPLICA_TYPE
from trainwright.kube.client.errors import BadRequest, Invalid
from trainwright.objects import Object
from trainwright.objects.resources import AUTOSCALERS, PODS, SERVICES


def final_refusal(kind: Kind, child: Object, error: Exception) -> str | None:
    """What is wrong with a job of this kind whose child was refused; None if the same child may be taken later."""
    return f"{_field(kind, child)}: {error}" if _finds_a_field_wrong(error) else None


def _finds_a_field_wrong(error: Exception) -> bool:
    """Whether the server has read the object and cannot take it. What a webhook, a policy or a quota says does not
    count: it may change without the job's doing."""
    if isinstance(error, BadRequest):
        return " cannot be handled as a " in error.message
    if not isinstance(error, Invalid) or error.message.startswith("admission webhook"):
        return False
    return any(cause.field for cause in error.causes)


def _field(kind: Kind, child: Object) -> str:
    """Where in the job the child comes from."""
    if child["kind"] in {PODS.kind, SERVICES.kind}:
        label = child["metadata"]["labels"][REPLICA_TYPE]
        return f"spec.{kind.replicas_field}[{next(role.name for role in kind.roles if role.label == label)}].template"
    return "spec.elasticPolicy" if child["kind"] == AUTOSCALERS.kind else "spec.runPolicy.schedulingPolicy"
