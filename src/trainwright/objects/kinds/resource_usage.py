"""CPU and memory that pods and the node use. The node measures them, the API server serves them as metrics.k8s.io."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Usage:
    cpu: float
    """Processors, on average over the window."""
    memory: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class UsageSample:
    moment: datetime
    window: float
    """Seconds over which the CPU was measured."""
    node: Usage
    pods: Mapping[str, Mapping[str, Usage]]
    """By the uid of the pod and the name of the container; only what runs."""


class UsageReader(Protocol):
    """Measures the pods with these uids, and the whole machine."""

    async def read(self, uids: Collection[str]) -> UsageSample: ...
