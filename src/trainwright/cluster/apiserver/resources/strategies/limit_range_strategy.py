"""LimitRanges: their defaults and checks. What they do to new objects: `writes/limit_range_admission.py`."""

from collections.abc import Iterator

from trainwright.cluster.apiserver.resources.resource_type import Strategy
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, duplicate, invalid, required
from trainwright.objects.quantities import parse_quantity

CONTAINER = "Container"
_ORDER = (
    ("min", "max", "min", "min"),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default", "defaultRequest", "defaultRequest"),
    ("min", "default", "default", "min"),
    ("default", "max", "default", "max"),
)
"""The lower and the upper amount, the field that the error names, and the one whose value it shows."""

_WORDS = {"min": "min", "max": "max", "default": "default", "defaultRequest": "default request"}


def _set_defaults(limit_range: Object) -> None:
    for item in (limit_range.setdefault("spec", {})).get("limits") or ():
        if item.get("type") != CONTAINER:
            continue
        default = (item.get("max") or {}) | (item.get("default") or {})
        request = (item.get("min") or {}) | default | (item.get("defaultRequest") or {})
        for name, value in (("default", default), ("defaultRequest", request)):
            if value:
                item[name] = value


def _validate(limit_range: Object) -> list[FieldError]:
    items = (limit_range.get("spec") or {}).get("limits") or []
    types = [item.get("type") or "" for item in items]
    found = [*(error for index, item in enumerate(items) for error in _item_errors(item, f"spec.limits[{index}]"))]
    repeated = {index for index, type_ in enumerate(types) if type_ in types[:index]}
    return found + [duplicate(f"spec.limits[{index}].type", types[index]) for index in sorted(repeated)]


def _item_errors(item: Object, path: str) -> Iterator[FieldError]:
    if not item.get("type"):
        yield required(f"{path}.type")
    for lower, upper, field, shown in _ORDER:
        low, high = item.get(lower) or {}, item.get(upper) or {}
        for name in sorted(low.keys() & high.keys()):
            if parse_quantity(low[name]) > parse_quantity(high[name]):
                detail = f"{_WORDS[lower]} value {low[name]} is greater than {_WORDS[upper]} value {high[name]}"
                yield invalid(f"{path}.{field}[{name}]", (item.get(shown) or {}).get(name), detail)


LIMIT_RANGE = Strategy(set_defaults=_set_defaults, validate=_validate)
