"""Numbers as Go's JSON decoder reads them into untyped values: int64 where it fits, else float64."""

import gc
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
_LONG = 100_000
_LONG_NUMBER = re.compile(rb"[0-9]{19}")


def decode_json(text: bytes) -> Any:
    """Raises msgspec.DecodeError or UnicodeDecodeError."""
    if len(text) > _LONG:
        with paused_collections():
            value = msgspec.json.decode(text)
    else:
        value = msgspec.json.decode(text)
    return _in_range(value) if _LONG_NUMBER.search(text) else value


@contextmanager
def paused_collections() -> Iterator[None]:
    """Without garbage collections, which would examine a big value again and again while it is made."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def as_go_number(value: float) -> float:
    """Raises ValueError for a number that JSON does not have."""
    if isinstance(value, int) and MIN_INT64 <= value <= MAX_INT64:
        return value
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"the number {str(value)[:40]} is out of range")
    return number


def _in_range(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_range(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_in_range(item) for item in value]
    return as_go_number(value) if isinstance(value, int) and not isinstance(value, bool) else value
