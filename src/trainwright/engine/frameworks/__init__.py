"""The frameworks by name; each kind names its framework."""

from trainwright.engine.framework import Framework
from trainwright.engine.frameworks.pytorch import PyTorch

FRAMEWORKS: dict[str, Framework] = {"pytorch": PyTorch()}
