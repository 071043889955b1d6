"""Walks into nested dictionaries, such as objects whose shape nobody has checked yet."""

from typing import Any


def value_at(value: Any, *path: str, default: Any = None) -> Any:
    """The value at the end of the path, or `default` if a step is missing, null or not a dictionary."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return default if value is None else value
