"""The frameworks by the name that their kinds' rows give."""

from trainwright.engine.framework import Framework
from trainwright.engine.frameworks.pytorch import PyTorch

FRAMEWORKS: dict[str, Framework] = {"pytorch": PyTorch()}
