"""What a pull or push reports about one blob."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

State = Literal[
    "Pulling fs layer",
    "Downloading",
    "Pull complete",
    "Already exists",
    "Preparing",
    "Pushing",
    "Pushed",
    "Mounted from",
    "Layer already exists",
]
"""In Docker's words."""
FINAL: tuple[State, ...] = ("Pull complete", "Already exists", "Pushed", "Mounted from", "Layer already exists")


@dataclass(frozen=True, slots=True)
class LayerProgress:
    id: str
    """As Docker shows it: the first twelve digits."""
    state: State
    done: int = 0
    total: int = 0
    source: str = ""
    """The repository of `Mounted from`."""


Report = Callable[[LayerProgress], None]


def ignore(progress: LayerProgress) -> None:
    """For callers that show no progress."""
