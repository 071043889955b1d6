"""The admission plugin LimitRanger: completes the resources of new pods, and refuses what is outside of the limits."""

from collections.abc import Iterable, Iterator, Mapping

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.resources.strategies.core_strategies import CONTAINER
from trainwright.cluster.apiserver.resources.strategies.workloads.pod_strategy import qos_class
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.objects import Object
from trainwright.objects.quantities import add_amounts, format_quantity, largest_amounts, parse_amounts, parse_quantity
from trainwright.objects.resources import LIMIT_RANGES, PERSISTENT_VOLUME_CLAIMS, PODS

_ANNOTATION = "kubernetes.io/limit-ranger"
_RANGES = LIMIT_RANGES.qualified_plural
_ZERO = parse_quantity(0)


def admit_limits(store: ObjectStore, kind: ResourceType, namespace: str, obj: Object) -> None:
    """Sets default requests and limits of a pod in place; raises 403 if it, or a claim, is outside of the limits."""
    if kind.resource not in (PODS, PERSISTENT_VOLUME_CLAIMS) or not store.count(_RANGES):
        return
    for stored in store.list(_RANGES, namespace):
        items = stored.obj["spec"].get("limits") or []
        if kind.resource == PODS:
            _set_defaults(obj, items)
            problems = list(_pod_problems(obj["spec"], items))
        else:
            problems = list(_claim_problems(obj["spec"], items))
        if problems:
            why = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            raise errors.forbidden(kind.resource, obj["metadata"]["name"], why)


def _set_defaults(pod: Object, items: Iterable[Object]) -> None:
    limits = _merged(items, "default")
    requests = _merged(items, "defaultRequest")
    done = []
    for group, word in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(group) or ():
            for field, defaults, name in (("requests", requests, "request"), ("limits", limits, "limit")):
                given = (container.get("resources") or {}).get(field) or {}
                missing = {key: value for key, value in defaults.items() if key not in given}
                if missing:
                    container.setdefault("resources", {})[field] = given | missing
                    done.append(f"{', '.join(sorted(missing))} {name} for {word} {container['name']}")
    if done:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations[_ANNOTATION] = f"LimitRanger plugin set: {'; '.join(done)}"
        pod["status"]["qosClass"] = qos_class(pod["spec"])


def _merged(items: Iterable[Object], field: str) -> dict[str, str]:
    merged: dict[str, str] = {}
    for item in items:
        if item.get("type") == CONTAINER:
            merged |= item.get(field) or {}
    return merged


def _pod_problems(spec: Object, items: Iterable[Object]) -> Iterator[str]:
    containers = [_resources(container) for container in spec.get("containers") or ()]
    initial = [_resources(container) for container in spec.get("initContainers") or ()]
    for item in items:
        if item.get("type") == CONTAINER:
            for requests, limits in (*containers, *initial):
                yield from _problems(item, requests, limits)
        elif item.get("type") == "Pod":
            totals = [
                largest_amounts([add_amounts(map(parse_amounts, many)), *map(parse_amounts, first)])
                for many, first in (
                    ([requests for requests, _ in containers], [requests for requests, _ in initial]),
                    ([limits for _, limits in containers], [limits for _, limits in initial]),
                )
            ]
            requests, limits = ({name: format_quantity(value) for name, value in amounts.items()} for amounts in totals)
            yield from _problems(item, requests, limits)


def _resources(container: Object) -> tuple[Mapping[str, str], Mapping[str, str]]:
    resources = container.get("resources") or {}
    return resources.get("requests") or {}, resources.get("limits") or {}


def _problems(item: Object, requests: Mapping[str, str], limits: Mapping[str, str]) -> Iterator[str]:
    per = item["type"]
    for name, bound in sorted((item.get("min") or {}).items()):
        usage, least = f"minimum {name} usage per {per} is {bound}", parse_quantity(bound)
        if name not in requests:
            yield f"{usage}.  No request is specified"
        elif parse_quantity(requests[name]) < least:
            yield f"{usage}, but request is {requests[name]}"
        elif name in limits and parse_quantity(limits[name]) < least:
            yield f"{usage}, but limit is {limits[name]}"
    for name, bound in sorted((item.get("max") or {}).items()):
        usage, most = f"maximum {name} usage per {per} is {bound}", parse_quantity(bound)
        if name not in limits:
            yield f"{usage}.  No limit is specified"
        elif parse_quantity(limits[name]) > most:
            yield f"{usage}, but limit is {limits[name]}"
        elif name in requests and parse_quantity(requests[name]) > most:
            yield f"{usage}, but request is {requests[name]}"
    yield from _ratio_problems(item, requests, limits)


def _ratio_problems(item: Object, requests: Mapping[str, str], limits: Mapping[str, str]) -> Iterator[str]:
    for name, bound in sorted((item.get("maxLimitRequestRatio") or {}).items()):
        ratio = f"{name} max limit to request ratio per {item['type']} is {bound}"
        request, limit = (parse_quantity(amounts.get(name, 0)) for amounts in (requests, limits))
        if request == _ZERO:
            yield f"{ratio}, but no request is specified or request is 0"
        elif limit == _ZERO:
            yield f"{ratio}, but no limit is specified or limit is 0"
        elif limit / request > parse_quantity(bound):
            yield f"{ratio}, but provided ratio is {float(limit / request):f}"


def _claim_problems(spec: Object, items: Iterable[Object]) -> Iterator[str]:
    wanted = (spec.get("resources") or {}).get("requests") or {}
    for item in items:
        if item.get("type") != PERSISTENT_VOLUME_CLAIMS.kind:
            continue
        for field, word in (("min", "minimum"), ("max", "maximum")):
            for name, bound in sorted((item.get(field) or {}).items()):
                usage = f"{word} {name} usage per {item['type']} is {bound}"
                if name not in wanted:
                    yield f"{usage}.  No request is specified"
                    continue
                given, limit = parse_quantity(wanted[name]), parse_quantity(bound)
                if given < limit if field == "min" else given > limit:
                    yield f"{usage}, but request is {wanted[name]}"
