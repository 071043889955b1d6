"""The small files by which agent and supervisor speak to each other: whole or not at all, also through a power failure.

Standard library only.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False  # typing itself would cost every pod four milliseconds
if TYPE_CHECKING:
    from typing import Any

_REQUIRED: Any = object()


def read_json(path: str, default: Any = _REQUIRED) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        if default is _REQUIRED:
            raise
        return default


def write_json(path: str, value: dict[str, Any]) -> None:
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.new", path)


def remove_tree(path: str) -> None:
    """Removes a directory of a pod as far as possible; what an overlay worked in has no permissions at all."""
    for parent, directories, _ in os.walk(path):
        for name in directories:
            _try(lambda inner: None if os.path.islink(inner) else os.chmod(inner, 0o700), os.path.join(parent, name))
    for parent, directories, names in os.walk(path, topdown=False):
        for name in names:
            _try(os.unlink, os.path.join(parent, name))
        for name in directories:
            inner = os.path.join(parent, name)
            _try(os.unlink if os.path.islink(inner) else os.rmdir, inner)
    _try(os.rmdir, path)


def _try(change: Any, path: str) -> None:
    try:
        change(path)
    except OSError:
        pass  # a file of another user in a volume, or gone meanwhile; the rest goes all the same
