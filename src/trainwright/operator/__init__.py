"""The process that makes jobs happen: watches them, asks the engine what should be, and makes it so.

`Operator` is the part for any event loop, `run_operator` the whole process behind `trainwright operator`.
"""

from trainwright.operator.crds import install_crds
from trainwright.operator.operator import Operator
from trainwright.operator.options import OperatorError, OperatorOptions
from trainwright.operator.process import run_operator

__all__ = ["Operator", "OperatorError", "OperatorOptions", "install_crds", "run_operator"]
