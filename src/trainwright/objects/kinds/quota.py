"""What an object uses of a ResourceQuota. Admission compares it with the limits, the quota controller sums it up."""

from collections.abc import Iterable
from fractions import Fraction

from trainwright.objects import Object
from trainwright.objects.paths import value_at
from trainwright.objects.quantities import Amounts, add_amounts, parse_amounts, peak_amounts
from trainwright.objects.resources import PERSISTENT_VOLUME_CLAIMS, PODS, SERVICES, Resource

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_REQUIRED = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""A quota of these refuses pods that do not say how much they need."""

_BY_NAME = {"configmaps", "persistentvolumeclaims", "pods", "resourcequotas", "secrets", "services"}
"""Kinds that a quota counts by their plural alone; `count/PLURAL.GROUP` counts any kind."""


def usage_of(resource: Resource, obj: Object) -> Amounts:
    used = {f"count/{resource.qualified_plural}": Fraction(1)}
    if not resource.group and resource.plural in _BY_NAME:
        used[resource.plural] = Fraction(1)
    if resource == PODS:
        return _pod_usage(obj) if _is_counted(obj) else {}
    if resource == SERVICES:
        kind, ports = value_at(obj, "spec", "type", default="ClusterIP"), value_at(obj, "spec", "ports", default=[])
        if kind in {"NodePort", "LoadBalancer"}:
            used["services.nodeports"] = Fraction(len(ports))
        if kind == "LoadBalancer":
            used["services.loadbalancers"] = Fraction(1)
    if resource == PERSISTENT_VOLUME_CLAIMS:
        used |= _claim_usage(obj)
    return used


def applies_to(quota: Object, resource: Resource, obj: Object) -> bool:
    """Whether the object is in the scopes of the quota."""
    spec = quota["spec"]
    terms = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    terms += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    return not terms or (resource == PODS and all(_in_scope(term, obj) for term in terms))


def missing_amounts(quota: Object, pod: Object) -> str:
    """The amounts that the quota demands of every container; empty if the pod states all of them."""
    missing: dict[str, set[str]] = {}
    spec = pod["spec"]
    for container in [*spec["containers"], *(spec.get("initContainers") or ())]:
        requests, limits = (
            parse_amounts(value_at(container, "resources", field, default={})) for field in ("requests", "limits")
        )
        stated = _computed(requests, limits)
        for name in quota["spec"].get("hard") or {}:
            if name in _REQUIRED and name not in stated:
                missing.setdefault(name, set()).add(container["name"])
    return "; ".join(f"{name} for: {','.join(sorted(names))}" for name, names in sorted(missing.items()))


def total_usage(quota: Object, objects: Iterable[tuple[Resource, Object]]) -> Amounts:
    """The usage of the resources that the quota limits."""
    hard = quota["spec"].get("hard") or {}
    used = add_amounts(usage_of(resource, obj) for resource, obj in objects if applies_to(quota, resource, obj))
    return {name: used.get(name, Fraction(0)) for name in hard}


def _pod_usage(pod: Object) -> Amounts:
    requests, limits = _pod_amounts(pod["spec"], "requests"), _pod_amounts(pod["spec"], "limits")
    return {"pods": Fraction(1), "count/pods": Fraction(1), **_computed(requests, limits)}


def _computed(requests: Amounts, limits: Amounts) -> Amounts:
    found: dict[str, Fraction] = {}
    for name, amount in requests.items():
        found[f"requests.{name}"] = amount
        if name in _COMPUTE or name.startswith("hugepages-"):
            found[name] = amount
    found |= {f"limits.{name}": limits[name] for name in _COMPUTE if name in limits}
    return found


def _pod_amounts(spec: Object, field: str) -> Amounts:
    def amounts(container: Object) -> Amounts:
        return parse_amounts(value_at(container, "resources", field, default={}))

    inits = [(container.get("restartPolicy"), amounts(container)) for container in spec.get("initContainers") or ()]
    return peak_amounts(map(amounts, spec["containers"]), inits)


def _is_counted(pod: Object) -> bool:
    return value_at(pod, "status", "phase") not in {"Succeeded", "Failed"}


def _claim_usage(claim: Object) -> Amounts:
    amount = parse_amounts(value_at(claim, "spec", "resources", "requests", default={})).get("storage", Fraction(0))
    used = {"requests.storage": amount}
    if name := value_at(claim, "spec", "storageClassName"):
        prefix = f"{name}.storageclass.storage.k8s.io"
        used |= {f"{prefix}/requests.storage": amount, f"{prefix}/persistentvolumeclaims": Fraction(1)}
    return used


def _in_scope(term: Object, pod: Object) -> bool:
    spec, best_effort = pod["spec"], value_at(pod, "status", "qosClass") == "BestEffort"
    if "qosClass" not in (pod.get("status") or {}):
        best_effort = not _pod_amounts(spec, "requests") and not _pod_amounts(spec, "limits")
    terminating = spec.get("activeDeadlineSeconds") is not None
    match term["scopeName"]:
        case "Terminating":
            return bool(terminating)
        case "NotTerminating":
            return not terminating
        case "BestEffort":
            return bool(best_effort)
        case "NotBestEffort":
            return not best_effort
        case "PriorityClass":
            name = spec.get("priorityClassName") or ""
            match term.get("operator"):
                case "In":
                    return name in (term.get("values") or ())
                case "NotIn":
                    return name not in (term.get("values") or ())
                case "Exists":
                    return bool(name)
            return not name
    return False
