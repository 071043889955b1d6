"""PaddleJob: its row, and its own fields."""

from collections.abc import Iterable
from typing import Annotated

from trainwright.api.autoscaling import Metric
from trainwright.api.kinds.kind import Kind, Role
from trainwright.api.types import Int32, text
from trainwright.objects.metadata import View


class ElasticPolicy(View, frozen=True):
    """Has no effect: PaddlePaddle's elastic mode needs an etcd server, which no operator provides."""

    min_replicas: Annotated[Int32 | None, text("Has no effect.")] = None
    max_replicas: Annotated[Int32 | None, text("Has no effect.")] = None
    max_restarts: Annotated[Int32 | None, text("Has no effect: see spec.runPolicy.backoffLimit.")] = None
    metrics: Annotated[list[Metric] | None, text("Has no effect: no HorizontalPodAutoscaler is created.")] = None


class PaddleFields(View, frozen=True):
    elastic_policy: ElasticPolicy | None = None


def _deprecations(fields: PaddleFields) -> Iterable[str]:
    if fields.elastic_policy is not None:
        yield "spec.elasticPolicy has no effect for PaddleJob, use kubectl scale and spec.runPolicy instead"


PADDLE = Kind(
    name="PaddleJob",
    plural="paddlejobs",
    framework="paddle",
    replicas_field="paddleReplicaSpecs",
    roles=(Role("Master"), Role("Worker")),
    container="paddle",
    port_name="master",
    port=36543,
    default_restart_policy="OnFailure",
    scaled_role="Worker",
    fields=PaddleFields,
    deprecations=_deprecations,
    missing_container='must have at least one container with name "{name}"',
)
