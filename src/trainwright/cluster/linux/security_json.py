"""The security of a container's process in pod.json. For types alone, like `pod_json`, which has the rest."""

from typing import TypedDict


class SecurityJson(TypedDict, total=False):
    """What the process of a container may do. Keys that are missing change nothing."""

    privileged: bool
    filtered: bool
    """System calls are."""
    user: int | None
    group: int | None
    groups: list[int] | None
    identified: bool
    """The ids are complete: they belong to an image."""
    capabilities: list[str]
    noNewPrivileges: bool
    readOnlyRoot: bool
