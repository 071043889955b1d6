"""The operator: watches jobs, plans with the engine and applies the plans.

`Operator` runs in any event loop. `process.run_operator` is the process behind `trainwright operator`; it is not
exported here, so that users of `Operator` do not load the code for metrics and webhooks.
"""

from trainwright.operator.operator import Operator
from trainwright.operator.options import OperatorError, OperatorOptions
from trainwright.operator.setup.crds import install_crds

__all__ = ["Operator", "OperatorError", "OperatorOptions", "install_crds"]
