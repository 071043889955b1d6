"""The flags of `up` that describe the cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainwright.cli.pods_python import default_python
from trainwright.cluster.facade import NodeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class UpFlags:
    kubeconfig: Path | None = None
    """The user's file, to which the context is added; None for the usual one."""
    port: int | None = None
    gang_scheduler: str | None = None
    ephemeral: bool = False
    """Deletes the data when it stops."""
    node: Mapping[str, Any] = field(default_factory=dict)
    """The flags about the node that were given, by field of NodeSettings."""

    def node_settings(self) -> NodeSettings:
        named = self.node.get("python")
        python = default_python(Path(named) if named else None)
        return NodeSettings(**{**self.node, "python": str(python.path), "python_origin": python.origin})
