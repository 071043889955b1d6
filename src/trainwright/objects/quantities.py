"""Kubernetes quantities (`500m`, `1.5Gi`, `2e3`), parsed into exact fractions."""

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

_SUFFIXES: dict[str, Fraction] = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "": Fraction(1),
    **{unit: Fraction(10 ** (3 * power)) for power, unit in enumerate(("k", "M", "G", "T", "P", "E"), start=1)},
    **{unit: Fraction(2 ** (10 * power)) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}
_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:[eE](?P<exponent>[+-]?\d{1,3})|(?P<suffix>[numkMGTPE]|[KMGTPE]i)?)",
    re.ASCII,
)
_LARGEST = Fraction(2**63 - 1)
_LONGEST = 100
"""Maximum number of characters. Kubernetes uses at most 19 digits, and Python limits the length of integers."""
_BINARY = ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")

Amounts = Mapping[str, Fraction]
"""By the name of the resource."""

SIDECAR = "Always"
"""The restartPolicy of an init container that runs beside all later containers."""


class QuantityError(ValueError):
    """The value is not a quantity. The message quotes it and shows the format."""


def parse_quantity(value: object) -> Fraction:
    """The exact amount of a text or a number: Kubernetes accepts both."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**_LONGEST:
        return _capped(Fraction(value))
    text = repr(value) if isinstance(value, float) else value
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) and len(text) <= _LONGEST else None
    if match is None:
        raise QuantityError(
            f"{_shown(value)} is not a quantity: write a number and a unit such as 500m, 2, 1.5Gi or 10G"
        )
    number = Fraction(match["number"])
    if match["exponent"] is not None:
        return _capped(number * Fraction(10) ** int(match["exponent"]))
    return _capped(number * _SUFFIXES[match["suffix"] or ""])


def _capped(amount: Fraction) -> Fraction:
    """Kubernetes has no larger quantities than 2^63-1."""
    return max(-_LARGEST, min(amount, _LARGEST))


def format_quantity(amount: Fraction) -> str:
    """The canonical form: whole binary units from Ki up, else a whole number, else thousandths and smaller."""
    if amount.denominator == 1:
        for unit in _BINARY:
            scaled = amount / _SUFFIXES[unit]
            if scaled and scaled.denominator == 1:
                return f"{scaled.numerator}{unit}"
        return str(amount.numerator)
    for unit in ("m", "u", "n"):
        scaled = amount / _SUFFIXES[unit]
        if scaled.denominator == 1:
            return f"{scaled.numerator}{unit}"
    return f"{-(-amount // _SUFFIXES['n'])}n"  # Kubernetes rounds up to billionths


def parse_amounts(amounts: Mapping[str, object]) -> dict[str, Fraction]:
    """A ResourceList (`{"cpu": "500m", "memory": "1Gi"}`) as numbers."""
    return {name: parse_quantity(value) for name, value in amounts.items()}


def add_amounts(many: Iterable[Amounts]) -> dict[str, Fraction]:
    total: dict[str, Fraction] = {}
    for amounts in many:
        for name, amount in amounts.items():
            total[name] = total.get(name, Fraction(0)) + amount
    return total


def largest_amounts(many: Iterable[Amounts]) -> dict[str, Fraction]:
    """The largest amount of each resource."""
    largest: dict[str, Fraction] = {}
    for amounts in many:
        for name, amount in amounts.items():
            largest[name] = max(largest.get(name, amount), amount)
    return largest


def peak_amounts(containers: Iterable[Amounts], init_containers: Iterable[tuple[str | None, Amounts]]) -> Amounts:
    """What a pod needs at once: the sum of its containers and sidecars, or an init container with the sidecars before
    it if that needs more. Init containers have their restartPolicy.
    """
    sidecars: list[Amounts] = []
    peaks: list[Amounts] = []
    for restart_policy, amounts in init_containers:
        peaks.append(add_amounts([amounts, *sidecars]))
        if restart_policy == SIDECAR:
            sidecars.append(amounts)
    return largest_amounts([add_amounts([*containers, *sidecars]), *peaks])


def _shown(value: object) -> str:
    """The value, abbreviated if it is long."""
    if isinstance(value, int) and abs(value) >= 10**_LONGEST:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
