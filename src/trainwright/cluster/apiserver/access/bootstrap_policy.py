"""The ClusterRoles and ClusterRoleBindings that every cluster has; `tools/bootstrap-policy` writes the file."""

from pathlib import Path
from typing import Any

import msgspec

from trainwright.objects import Object

_AUTOUPDATE = "rbac.authorization.kubernetes.io/autoupdate"


def default_policy() -> list[Object]:
    """Aggregated roles have no rules yet: their controller adds them."""
    found: list[Object] = msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes())
    return found


def with_missing_policy(existing: Object, default: Object) -> Object | None:
    """The object with the default rules or subjects that it lacks; None if it needs no change or refuses updates."""
    annotations = existing["metadata"].get("annotations") or {}
    if annotations.get(_AUTOUPDATE) != "true" or default.get("aggregationRule"):
        return None
    field = "subjects" if "roleRef" in default else "rules"
    present: list[Any] = existing.get(field) or []
    missing = [entry for entry in default.get(field) or () if entry not in present]
    return existing | {field: [*present, *missing]} if missing else None
