"""The kinds of jobs: one file per kind with its row, fields, defaults and checks; this table lists them.

A new kind is a file here and one in `trainwright.engine.frameworks`, both named after the framework.
"""

from trainwright.api.kinds.jax import JAX
from trainwright.api.kinds.kind import GROUP, VERSION, Kind, ReplicaSpecs, Role, Unvalidated
from trainwright.api.kinds.mpi import MPI
from trainwright.api.kinds.paddle import PADDLE
from trainwright.api.kinds.pytorch import PYTORCH
from trainwright.api.kinds.tensorflow import TENSORFLOW
from trainwright.api.kinds.xgboost import XGBOOST
from trainwright.api.types import MULTIKUEUE, OPERATOR

__all__ = [
    "GROUP",
    "KINDS",
    "MULTIKUEUE",
    "OPERATOR",
    "PYTORCH",
    "VERSION",
    "Kind",
    "ReplicaSpecs",
    "Role",
    "Unvalidated",
]

KINDS: dict[str, Kind] = {kind.name: kind for kind in (PYTORCH, TENSORFLOW, XGBOOST, PADDLE, JAX, MPI)}
