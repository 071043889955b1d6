"""The frameworks by the name that their kinds' rows give: what their environment is and who decides success."""

from trainwright.engine.framework import Framework
from trainwright.engine.frameworks.pytorch import PyTorch

FRAMEWORKS: dict[str, Framework] = {"pytorch": PyTorch()}
