"""Compares objects field by field. The API server adds defaults and normalizes quantities, so an object that it returns
is rarely equal to the one that was written."""

from typing import Any

from trainwright.objects.quantities import QuantityError, parse_quantity


def covers(actual: Any, wanted: Any) -> bool:
    """True if `actual` has every field of `wanted`. Lists must have the same length and are compared item by item."""
    match wanted:
        case dict():
            return isinstance(actual, dict) and all(covers(actual.get(key), value) for key, value in wanted.items())
        case list():
            return (
                isinstance(actual, list)
                and len(actual) == len(wanted)
                and all(covers(*pair) for pair in zip(actual, wanted, strict=True))
            )
        case bool():
            return actual is wanted
        case _:
            return bool(actual == wanted and not isinstance(actual, bool)) or _same_amount(actual, wanted)


def _same_amount(actual: Any, wanted: Any) -> bool:
    try:
        return parse_quantity(actual) == parse_quantity(wanted)
    except QuantityError:
        return False
