"""Handwritten digits of 8x8 pixels, enlarged to the 28x28 of MNIST."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

TRAINED = 1500


class FashionMNIST(torch.utils.data.Dataset[tuple[Any, int]]):
    def __init__(self, root: str, train: bool, transform: Callable[[Any], Any], download: bool = False) -> None:
        images, digits = load_digits(return_X_y=True)
        kept = slice(None, TRAINED) if train else slice(TRAINED, None)
        small = images[kept].reshape(-1, 8, 8) / 16
        self._images = np.pad(small.repeat(3, axis=1).repeat(3, axis=2), ((0, 0), (2, 2), (2, 2)))
        self._digits = digits[kept]
        self._transform = transform

    def __len__(self) -> int:
        return len(self._digits)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self._transform(self._images[index]), int(self._digits[index])


MNIST = FashionMNIST
