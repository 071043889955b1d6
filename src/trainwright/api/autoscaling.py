"""Metrics of Kubernetes' autoscaling/v2 for elastic jobs. The HorizontalPodAutoscaler gets them unchanged.

Every field is declared, so that the API server rejects a misspelt one when the job is applied.
"""

from typing import Annotated, Any

from msgspec import Meta

from trainwright.api.schema import structural_schema
from trainwright.api.types import ATOMIC_MAP, Int32, LabelSelector, Quantity, text
from trainwright.objects.metadata import View


class MetricTarget(View, frozen=True):
    """Target value of the metric."""

    type: Annotated[str, text("Type of the target: Utilization, Value or AverageValue.")]
    average_utilization: Annotated[Int32 | None, text("Average over the pods, in percent of their requests.")] = None
    average_value: Annotated[Quantity | None, text("Average over the pods.")] = None
    value: Annotated[Quantity | None, text("Absolute value.")] = None


class MetricName(View, frozen=True):
    """Identifies a metric of the metrics API."""

    name: Annotated[str, text("Name of the metric.")]
    selector: Annotated[
        LabelSelector | None,
        text("Label selector of the series. If not set, the name alone selects them.", **ATOMIC_MAP),
    ] = None


class ResourceMetric(View, frozen=True):
    """Usage of a resource by all containers of the pods."""

    name: Annotated[str, text("Name of the resource, such as cpu or memory.")]
    target: MetricTarget


class ContainerResourceMetric(View, frozen=True):
    """Usage of a resource by one container of each pod."""

    container: Annotated[str, text("Name of the container.")]
    name: Annotated[str, text("Name of the resource, such as cpu or memory.")]
    target: MetricTarget


class PodsMetric(View, frozen=True):
    """A metric of each pod."""

    metric: MetricName
    target: MetricTarget


class ExternalMetric(View, frozen=True):
    """A metric from outside the cluster."""

    metric: MetricName
    target: MetricTarget


class DescribedObject(View, frozen=True):
    """The object that a metric describes."""

    kind: Annotated[str, text("Kind of the object.")]
    name: Annotated[str, text("Name of the object.")]
    api_version: Annotated[str | None, text("API version of the object.")] = None


class ObjectMetric(View, frozen=True):
    """A metric of one object in the cluster."""

    described_object: DescribedObject
    metric: MetricName
    target: MetricTarget


class MetricSpec(View, frozen=True):
    """A metric to scale by. Only the field that `type` names is used."""

    type: Annotated[str, text("Type of the metric: Resource, ContainerResource, Pods, External or Object.")]
    resource: ResourceMetric | None = None
    container_resource: ContainerResourceMetric | None = None
    pods: PodsMetric | None = None
    external: ExternalMetric | None = None
    object: ObjectMetric | None = None


Metric = Annotated[dict[str, Any], Meta(extra_json_schema=structural_schema(MetricSpec))]
"""A MetricSpec as it is in the manifest."""
