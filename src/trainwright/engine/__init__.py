"""What should be: one job, its children and the time in, a plan out. Nothing here does I/O or reads a clock."""

from trainwright.engine.observed import Companion, Observed, ServiceView
from trainwright.engine.plan import Delete, JobEvent, Patch, Plan, Transition
from trainwright.engine.planner import plan
from trainwright.engine.rendering.init_template import InitTemplate, InitTemplateError, parse_init_template
from trainwright.engine.settings import EMBEDDED, Addressing, InitContainer, Settings

__all__ = [
    "EMBEDDED",
    "Addressing",
    "Companion",
    "Delete",
    "InitContainer",
    "InitTemplate",
    "InitTemplateError",
    "JobEvent",
    "Observed",
    "Patch",
    "Plan",
    "ServiceView",
    "Settings",
    "Transition",
    "parse_init_template",
    "plan",
]
