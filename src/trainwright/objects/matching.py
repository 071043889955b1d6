"""Does an object already say what we would write? Servers fill in defaults and spell quantities their own way, so it
is asked field by field: what we do not name is not ours to judge."""

from typing import Any

from trainwright.objects.quantities import QuantityError, parse_quantity


def covers(actual: Any, wanted: Any) -> bool:
    """Whether every field of `wanted` stands in `actual`. Lists are compared as wholes, element by element."""
    match wanted:
        case dict():
            return isinstance(actual, dict) and all(covers(actual.get(key), value) for key, value in wanted.items())
        case list():
            return (
                isinstance(actual, list)
                and len(actual) == len(wanted)
                and all(covers(one, other) for one, other in zip(actual, wanted, strict=True))
            )
        case bool():
            return actual is wanted
        case _:
            return bool(actual == wanted and not isinstance(actual, bool)) or _same_amount(actual, wanted)


def _same_amount(one: Any, other: Any) -> bool:
    try:
        return parse_quantity(one) == parse_quantity(other)
    except QuantityError:
        return False
