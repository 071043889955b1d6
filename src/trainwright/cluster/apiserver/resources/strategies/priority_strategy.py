"""The strategy of PriorityClasses."""

from trainwright.cluster.apiserver.resources.resource_type import Strategy
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, forbidden, invalid, not_supported
from trainwright.objects.kinds.priorities import HIGHEST_USER_PRIORITY, SYSTEM_PREFIX, SYSTEM_PRIORITIES

_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")


def _set_defaults(priority: Object) -> None:
    priority.setdefault("value", 0)
    priority.setdefault("preemptionPolicy", _PREEMPTION_POLICIES[0])
    if not priority.get("globalDefault"):
        priority.pop("globalDefault", None)


def _validate(priority: Object) -> list[FieldError]:
    name, value, policy = priority["metadata"].get("name", ""), priority["value"], priority["preemptionPolicy"]
    found = []
    if name.startswith(SYSTEM_PREFIX):
        if problem := _system_problem(name, value, is_default=bool(priority.get("globalDefault"))):
            text = (
                f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {problem}"
            )
            found.append(forbidden("metadata.name", text))
    elif value > HIGHEST_USER_PRIORITY:
        text = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        found.append(forbidden("value", text))
    if policy not in _PREEMPTION_POLICIES:
        found.append(not_supported("preemptionPolicy", policy, _PREEMPTION_POLICIES))
    return found


def _system_problem(name: str, value: int, *, is_default: bool) -> str:
    if name not in SYSTEM_PRIORITIES:
        return f"{name} is not a known system priority class"
    if value != SYSTEM_PRIORITIES[name]:
        return f"value of {name} PriorityClass must be {SYSTEM_PRIORITIES[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if is_default else ""


def _validate_update(new: Object, old: Object) -> list[FieldError]:
    found = []
    if new["value"] != old["value"]:
        found.append(forbidden("value", "may not be changed in an update."))
    if new["preemptionPolicy"] != old.get("preemptionPolicy"):
        found.append(invalid("preemptionPolicy", new["preemptionPolicy"], "field is immutable"))
    return found


PRIORITY_CLASS = Strategy(set_defaults=_set_defaults, validate=_validate, validate_update=_validate_update)
