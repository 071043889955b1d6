"""The operator: watches jobs, plans with the engine and applies the plans.

`JobController` runs in any event loop. `main.run_operator` is the process behind `trainwright operator`; it is not
exported here, so that users of `JobController` do not load the code for metrics and webhooks.
"""

from trainwright.operator.job_controller import JobController
from trainwright.operator.options import OperatorError, OperatorOptions
from trainwright.operator.setup.crds import install_crds

__all__ = ["JobController", "OperatorError", "OperatorOptions", "install_crds"]
