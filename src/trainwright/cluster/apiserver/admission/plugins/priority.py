"""The admission plugin Priority: a new pod gets the priority of its class, and only one class is the default."""

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.objects import Object
from trainwright.objects.resources import PODS, PRIORITY_CLASSES

_NO_CLASS: Object = {"metadata": {"name": ""}, "value": 0, "preemptionPolicy": "PreemptLowerPriority"}


def set_priority(store: ObjectStore, pod: Object) -> None:
    spec, name = pod["spec"], pod["metadata"]["name"]
    if wanted := spec.get("priorityClassName"):
        found = store.get(PRIORITY_CLASSES.qualified_plural, "", wanted)
        if found is None:
            raise errors.forbidden(PODS, name, f"no PriorityClass with name {wanted} was found")
        chosen = found.obj
    else:
        chosen = _default_class(store) or _NO_CLASS
        if chosen["metadata"]["name"]:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    value, policy = chosen["value"], chosen["preemptionPolicy"]
    if spec.get("priority") not in {None, value}:
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; priority admission "
            f"controller computed {value} from the given PriorityClass name"
        )
        raise errors.forbidden(PODS, name, why)
    if spec.get("preemptionPolicy") not in {None, policy}:
        why = (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise errors.forbidden(PODS, name, why)
    spec |= {"priority": value, "preemptionPolicy": policy}


def admit_priority_class(store: ObjectStore, priority: Object) -> None:
    name, present = priority["metadata"]["name"], _default_class(store)
    if priority.get("globalDefault") and present is not None and present["metadata"]["name"] != name:
        why = f"PriorityClass {present['metadata']['name']} is already marked as default. Only one default can exist"
        raise errors.forbidden(PRIORITY_CLASSES, name, why)


def _default_class(store: ObjectStore) -> Object | None:
    found = [stored.obj for stored in store.list(PRIORITY_CLASSES.qualified_plural) if stored.obj.get("globalDefault")]
    return min(found, key=lambda priority: int(priority["value"]), default=None)
