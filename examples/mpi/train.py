"""Trains a network for handwritten digits with MPI: every process has a share of the images, gradients are summed."""

import argparse

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits

TRAINED = 1500
HIDDEN = 64
MOMENTUM = 0.9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--rate", type=float, default=0.2)
    options = parser.parse_args()
    world = MPI.COMM_WORLD

    images, digits = load_digits(return_X_y=True)
    images = images / 16
    mine = slice(world.rank, TRAINED, world.size)
    weights = initial_weights()  # the same in every process
    step = np.zeros_like(weights)
    for epoch in range(1, options.epochs + 1):
        loss, gradient = loss_and_gradient(weights, images[mine], digits[mine])
        sums = world.allreduce(np.append(gradient, loss)) / TRAINED
        step = MOMENTUM * step - options.rate * sums[:-1]
        weights += step
        if world.rank == 0:
            print(f"[{epoch}/{options.epochs}] loss={sums[-1]:.4f}", flush=True)

    test = slice(TRAINED, None)
    loss, _ = loss_and_gradient(weights, images[test], digits[test])
    found = forward(weights, images[test])[1].argmax(axis=1)
    accuracy = (found == digits[test]).mean()
    result = f"test loss={loss / len(found):.4f} accuracy={accuracy:.4f}"
    print(f"process {world.rank} of {world.size}: {result}", flush=True)


def initial_weights() -> np.ndarray:
    """Of both layers, in one vector."""
    chance = np.random.default_rng(1)
    return np.append(chance.normal(0, 0.1, 65 * HIDDEN), chance.normal(0, 0.1, (HIDDEN + 1) * 10))


def forward(weights: np.ndarray, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The hidden layer, and the probability of each digit."""
    first, second = np.split(weights, [65 * HIDDEN])
    hidden = np.tanh(with_bias(images).dot(first.reshape(65, HIDDEN)))
    scores = with_bias(hidden).dot(second.reshape(HIDDEN + 1, 10))
    likely = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, likely / likely.sum(axis=1, keepdims=True)


def loss_and_gradient(weights: np.ndarray, images: np.ndarray, digits: np.ndarray) -> tuple[float, np.ndarray]:
    """Sums over the images."""
    hidden, likely = forward(weights, images)
    loss = -np.log(likely[np.arange(len(digits)), digits]).sum()
    likely[np.arange(len(digits)), digits] -= 1
    second = weights[65 * HIDDEN :].reshape(HIDDEN + 1, 10)
    below = likely.dot(second[:-1].T) * (1 - hidden**2)
    gradient = np.append(with_bias(images).T.dot(below), with_bias(hidden).T.dot(likely))
    return float(loss), gradient


def with_bias(values: np.ndarray) -> np.ndarray:
    return np.hstack([values, np.ones((len(values), 1))])


if __name__ == "__main__":
    main()
