"""The transforms that the programs of the seeds use."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch


class Compose:
    def __init__(self, steps: Sequence[Callable[[Any], Any]]) -> None:
        self._steps = steps

    def __call__(self, value: Any) -> Any:
        for step in self._steps:
            value = step(value)
        return value


class ToTensor:
    def __call__(self, image: np.ndarray) -> Any:
        return torch.from_numpy(image.astype(np.float32)).unsqueeze(0)


class Normalize:
    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        self._mean, self._deviation = mean[0], deviation[0]

    def __call__(self, image: Any) -> Any:
        return (image - self._mean) / self._deviation
