"""The process that makes jobs happen: watches them, asks the engine what should be, and makes it so.

`Operator` is the part for any event loop. The whole process behind `trainwright operator` is `process.run_operator`;
it is not named here, because whoever wants the part alone need not load what serves metrics and webhooks.
"""

from trainwright.operator.operator import Operator
from trainwright.operator.options import OperatorError, OperatorOptions
from trainwright.operator.setup.crds import install_crds

__all__ = ["Operator", "OperatorError", "OperatorOptions", "install_crds"]
