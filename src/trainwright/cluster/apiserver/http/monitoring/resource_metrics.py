"""The API metrics.k8s.io, from which `kubectl top` reads: nothing of it is stored."""

from collections.abc import Mapping
from dataclasses import replace

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.request_info import RequestInfo
from trainwright.cluster.apiserver.http.requests import read_selectors
from trainwright.cluster.apiserver.http.responses import Response, encode
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.storage.store import ObjectStore, Stored
from trainwright.objects import Object
from trainwright.objects.kinds.resource_usage import Usage, UsageReader, UsageSample
from trainwright.objects.resources import NODE_METRICS, NODES, POD_METRICS, PODS, Resource
from trainwright.objects.times import format_time

METRICS = (NODE_METRICS, POD_METRICS)
_RUNNING = "Running"


class ResourceMetrics:
    """Measures when a client asks, so that it costs nothing otherwise."""

    def __init__(self, store: ObjectStore, registry: Registry, reader: UsageReader) -> None:
        self._store = store
        self._registry = registry
        self._reader = reader

    async def get(self, shown: Resource, info: RequestInfo, query: Mapping[str, str]) -> Response:
        """`shown` is the kind of metrics that `info` names."""
        stored, name = NODES if shown == NODE_METRICS else PODS, info.name_in_path
        if name:
            listed = self._one(stored, shown, info.namespace, name)
        else:
            listed = self._matching(stored, info.namespace or None, query)
        found = listed
        if shown == POD_METRICS:
            listed = [pod for pod in listed if (pod.obj.get("status") or {}).get("phase") == _RUNNING]
        sample = await self._reader.read([stored.obj["metadata"]["uid"] for stored in listed if shown == POD_METRICS])
        items = (
            [_node_metrics(stored.obj, sample) for stored in listed] if shown == NODE_METRICS else _pods(listed, sample)
        )
        if name and not items:
            raise _not_found(shown, found[0].key[0], name)
        if name:
            return Response(200, encode(items[0]))
        head = {"kind": f"{shown.kind}List", "apiVersion": shown.api_version, "metadata": {}}
        return Response(200, encode(head | {"items": items}))

    def _matching(self, resource: Resource, namespace: str | None, query: Mapping[str, str]) -> list[Stored]:
        kind = self._registry.of(resource)
        selection = read_selectors(query, kind)
        return [stored for stored in self._store.list(kind.key, namespace) if selection.matches(stored)]

    def _one(self, resource: Resource, shown: Resource, namespace: str, name: str) -> list[Stored]:
        found = self._store.get(resource.qualified_plural, namespace, name)
        if found is None:
            raise _not_found(shown, namespace, name)
        return [found]


def _not_found(shown: Resource, namespace: str, name: str) -> errors.StatusError:
    """In the words of the metrics server."""
    named = replace(shown, plural=shown.kind.lower())
    return errors.not_found(named, f"{namespace}/{name}" if namespace else name)


def _pods(pods: list[Stored], sample: UsageSample) -> list[Object]:
    measured = [(pod.obj, sample.pods.get(pod.obj["metadata"]["uid"])) for pod in pods]
    return [
        _object(POD_METRICS, pod, sample)
        | {"containers": [{"name": name, "usage": _usage(usage)} for name, usage in containers.items()]}
        for pod, containers in measured
        if containers
    ]


def _node_metrics(node: Object, sample: UsageSample) -> Object:
    return _object(NODE_METRICS, node, sample) | {"usage": _usage(sample.node)}


def _object(shown: Resource, obj: Object, sample: UsageSample) -> Object:
    kept = {key: obj["metadata"][key] for key in ("name", "namespace", "labels") if key in obj["metadata"]}
    moment = format_time(sample.moment)
    return {
        "kind": shown.kind,
        "apiVersion": shown.api_version,
        "metadata": kept | {"creationTimestamp": moment},
        "timestamp": moment,
        "window": f"{sample.window:.3f}s",
    }


def _usage(usage: Usage) -> Object:
    return {"cpu": f"{round(usage.cpu * 1e9)}n", "memory": f"{usage.memory // 1024}Ki"}
