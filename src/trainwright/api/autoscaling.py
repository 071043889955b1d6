"""What an elastic job may be scaled by: the metrics of Kubernetes' autoscaling/v2, handed on as they are written.

They are declared field by field, so that the API server refuses a misspelt one when the job is applied.
"""

from typing import Annotated, Any

from msgspec import Meta

from trainwright.api.schema import structural_schema
from trainwright.api.types import ATOMIC_MAP, Int32, LabelSelector, Quantity, text
from trainwright.objects.metadata import View


class MetricTarget(View, frozen=True):
    """The value that the autoscaler steers for."""

    type: Annotated[str, text("Utilization, Value or AverageValue.")]
    average_utilization: Annotated[Int32 | None, text("Percent of what the pods request, on average.")] = None
    average_value: Annotated[Quantity | None, text("The average over the pods.")] = None
    value: Annotated[Quantity | None, text("The value itself.")] = None


class MetricName(View, frozen=True):
    """Which metric of the metrics API."""

    name: Annotated[str, text("The metric's name.")]
    selector: Annotated[LabelSelector | None, text("Which of its series count.", **ATOMIC_MAP)] = None


class ResourceMetric(View, frozen=True):
    """A resource that all containers of the pods use."""

    name: Annotated[str, text("cpu, memory or another resource.")]
    target: MetricTarget


class ContainerResourceMetric(View, frozen=True):
    """A resource that one container of each pod uses."""

    container: Annotated[str, text("The container's name.")]
    name: Annotated[str, text("cpu, memory or another resource.")]
    target: MetricTarget


class PodsMetric(View, frozen=True):
    """A metric of each pod."""

    metric: MetricName
    target: MetricTarget


class ExternalMetric(View, frozen=True):
    """A metric of something outside the cluster."""

    metric: MetricName
    target: MetricTarget


class DescribedObject(View, frozen=True):
    """The object that a metric is about."""

    kind: Annotated[str, text("Its kind.")]
    name: Annotated[str, text("Its name.")]
    api_version: Annotated[str | None, text("Its apiVersion.")] = None


class ObjectMetric(View, frozen=True):
    """A metric of one object of the cluster."""

    described_object: DescribedObject
    metric: MetricName
    target: MetricTarget


class MetricSpec(View, frozen=True):
    """One metric to scale by; the field that `type` names says which."""

    type: Annotated[str, text("Resource, ContainerResource, Pods, External or Object.")]
    resource: ResourceMetric | None = None
    container_resource: ContainerResourceMetric | None = None
    pods: PodsMetric | None = None
    external: ExternalMetric | None = None
    object: ObjectMetric | None = None


Metric = Annotated[dict[str, Any], Meta(extra_json_schema=structural_schema(MetricSpec))]
"""A MetricSpec as the manifest has it."""
