"""Writes through subresources: `scale`, `binding` of pods."""

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.resources.resource_type import ScalePaths
from trainwright.objects import Object, copied, field_errors
from trainwright.objects.paths import value_at
from trainwright.objects.resources import Resource
from trainwright.objects.selectors import format_label_selector

_SCALE = Resource("autoscaling", "v1", "scales", "Scale")


def scale_of(paths: ScalePaths, obj: Object) -> Object:
    """The autoscaling/v1 Scale of an object."""
    metadata = {
        key: obj["metadata"][key]
        for key in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        if key in obj["metadata"]
    }
    status: Object = {"replicas": value_at(obj, *paths.status_replicas, default=0)}
    if paths.selector and (selector := value_at(obj, *paths.selector)):
        status["selector"] = selector if isinstance(selector, str) else format_label_selector(selector)
    replicas = value_at(obj, *paths.replicas)
    spec = {"replicas": replicas} if replicas else {}  # Go leaves out a zero
    return {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata, "spec": spec, "status": status}


def with_scale(paths: ScalePaths, obj: Object, scale: Object, *, custom: bool) -> Object:
    """The object with the replicas of `scale`."""
    spec = scale.get("spec") or {}
    if not isinstance(spec, dict):
        raise errors.bad_request(f"Scale: spec must be of type object, not {spec!r}")
    replicas = 0 if spec.get("replicas") is None else spec["replicas"]
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise errors.bad_request(f"Scale: spec.replicas must be of type integer, not {replicas!r}")
    if replicas < 0 and not custom:  # the schema of a custom resource checks it
        negative = field_errors.invalid("spec.replicas", replicas, "must be greater than or equal to 0")
        raise errors.invalid(_SCALE, obj["metadata"]["name"], [negative])
    changed = copied(obj)
    parent = changed
    for key in paths.replicas[:-1]:
        parent = parent.setdefault(key, {})
    parent[paths.replicas[-1]] = replicas
    if version := (scale.get("metadata") or {}).get("resourceVersion"):
        changed["metadata"]["resourceVersion"] = version
    return changed


def bound_pod(pod: Object, node: str, moment: str, metadata: Object) -> Object:
    """The pod with its node and the annotations and labels of the Binding's `metadata`."""
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": moment}
    status = pod.get("status") or {}
    others = [condition for condition in status.get("conditions") or [] if condition.get("type") != "PodScheduled"]
    merged = dict(pod["metadata"])
    for field in ("annotations", "labels"):
        added = metadata.get(field) or {}
        if not isinstance(added, dict) or not all(isinstance(value, str) for value in added.values()):
            raise errors.bad_request(f"Binding: metadata.{field} must be a map of text")
        if added:
            merged[field] = (merged.get(field) or {}) | added
    return pod | {
        "metadata": merged,
        "spec": pod["spec"] | {"nodeName": node},
        "status": status | {"conditions": [*others, scheduled]},
    }
