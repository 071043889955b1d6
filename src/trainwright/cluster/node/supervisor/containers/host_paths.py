"""At `plain` nothing is mounted: the paths of volumes on this machine replace their mount paths in arguments.

Standard library only.
"""

from __future__ import annotations

import re


def replace_path(text: str, mount_path: str, host_path: str) -> str:
    """Where it stands alone or begins a longer path, not inside of other words."""
    if mount_path not in text:  # thousands of values may meet thousands of paths
        return text
    return re.sub(rf"(?<![\w./-]){re.escape(mount_path)}(?![\w.-])", lambda _: host_path, text)


def replace_paths(text: str, host_paths: dict[str, str]) -> str:
    """The longest ones first, because one may be below another."""
    for path in sorted(host_paths, key=len, reverse=True):
        text = replace_path(text, path, host_paths[path])
    return text
