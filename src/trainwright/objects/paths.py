"""Access to nested dictionaries, such as objects that are not validated yet."""

from typing import Any


def value_at(value: Any, *path: str, default: Any = None) -> Any:
    """The value at the path, or `default` if a field is missing, null or not in a dictionary."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return default if value is None else value
