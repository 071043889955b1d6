"""What should be: one job, its children and the time in, a plan out. Nothing here does I/O or reads a clock."""

from trainwright.engine.observed import Observed, ServiceView
from trainwright.engine.plan import Delete, JobEvent, Plan
from trainwright.engine.planner import plan
from trainwright.engine.settings import EMBEDDED, Addressing, InitContainer, Settings

__all__ = [
    "EMBEDDED",
    "Addressing",
    "Delete",
    "InitContainer",
    "JobEvent",
    "Observed",
    "Plan",
    "ServiceView",
    "Settings",
    "plan",
]
