"""The frameworks by name; each kind names its framework."""

from trainwright.engine.framework import Framework
from trainwright.engine.frameworks.jax import Jax
from trainwright.engine.frameworks.mpi import MPI
from trainwright.engine.frameworks.paddle import Paddle
from trainwright.engine.frameworks.pytorch import PyTorch
from trainwright.engine.frameworks.tensorflow import TensorFlow
from trainwright.engine.frameworks.xgboost import XGBoost

FRAMEWORKS: dict[str, Framework] = {
    "pytorch": PyTorch(),
    "tensorflow": TensorFlow(),
    "xgboost": XGBoost(),
    "paddle": Paddle(),
    "jax": Jax(),
    "mpi": MPI(),
}
