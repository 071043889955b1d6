"""Plans what to change: a pure function of one job, its observed children, the settings and the time.

Nothing here does I/O or reads a clock.
"""

from trainwright.engine.init_template import InitTemplate, InitTemplateError, parse_init_template
from trainwright.engine.observed_state import ExtraView, Observed, ServiceView, read_extra
from trainwright.engine.plan import Create, Delete, JobEvent, Patch, Plan, Replace, Transition
from trainwright.engine.planner import plan
from trainwright.engine.settings import EMBEDDED, InitContainer, Settings

__all__ = [
    "EMBEDDED",
    "Create",
    "Delete",
    "ExtraView",
    "InitContainer",
    "InitTemplate",
    "InitTemplateError",
    "JobEvent",
    "Observed",
    "Patch",
    "Plan",
    "Replace",
    "ServiceView",
    "Settings",
    "Transition",
    "parse_init_template",
    "plan",
    "read_extra",
]
