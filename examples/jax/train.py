"""Learns to read handwritten digits with JAX on several processes.

The data ships with scikit-learn, so nothing is downloaded. The devices of all processes form one mesh: every process
puts its share of the images there, and the compiler inserts the sums over processes that the gradients need. A JAXJob
sets COORDINATOR_ADDRESS, COORDINATOR_PORT, NUM_PROCESSES and PROCESS_ID; without them the program runs as one process.
"""

import argparse
import os
from typing import Any

PROCESS = int(os.environ.get("PROCESS_ID", "0"))
PROCESSES = int(os.environ.get("NUM_PROCESSES", "1"))

# Printed before JAX is imported, which can take seconds on a busy machine.
print(f"Process {PROCESS} of {PROCESSES}: JAX", flush=True)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

SEED = 7
TRAINING_IMAGES = 1500
LOG_EVERY = 10  # steps

Parameters = list[tuple[jax.Array, jax.Array]]


def main() -> None:
    args = parse_arguments()
    if PROCESSES > 1:
        coordinator = f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}"
        jax.distributed.initialize(coordinator, num_processes=PROCESSES, process_id=PROCESS)
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    everywhere = NamedSharding(mesh, PartitionSpec())
    by_device = NamedSharding(mesh, PartitionSpec("data"))
    print(f"Process {PROCESS} of {PROCESSES}: {jax.device_count()} devices in all processes", flush=True)

    images, labels = load_data()
    parameters = jax.device_put(new_parameters(), everywhere)
    my_images, my_labels = images[PROCESS:TRAINING_IMAGES:PROCESSES], labels[PROCESS:TRAINING_IMAGES:PROCESSES]
    shuffle = np.random.default_rng(SEED + PROCESS)
    for epoch in range(1, args.epochs + 1):
        order = shuffle.permutation(len(my_labels))
        for step in range(len(order) // args.batch_size):
            chosen = order[step * args.batch_size : (step + 1) * args.batch_size]
            # One array over all processes, of which this process provides its part.
            batch = [jax.make_array_from_process_local_data(by_device, part[chosen]) for part in (my_images, my_labels)]
            loss, parameters = train_step(parameters, *batch, args.lr)
            if PROCESS == 0 and step % LOG_EVERY == 0:
                seen = step * args.batch_size * PROCESSES
                print(f"Train Epoch: {epoch} [{seen}/{TRAINING_IMAGES}] loss={loss:.4f}", flush=True)

    # The parameters are the same everywhere, so all processes print the same result.
    here = jax.tree.map(lambda array: array.addressable_data(0), parameters)
    test_images, test_labels = images[TRAINING_IMAGES:], labels[TRAINING_IMAGES:]
    accuracy = jnp.mean(predict(here, test_images).argmax(axis=1) == test_labels)
    test_loss = cross_entropy(here, test_images, test_labels)
    print(f"Process {PROCESS} of {PROCESSES}: test loss={test_loss:.6f} accuracy={accuracy:.4f}", flush=True)
    if PROCESSES > 1:
        jax.distributed.shutdown()  # waits for the others: no process exits while a peer may still need it


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the training images (default: 8)")
    parser.add_argument("--lr", type=float, default=0.5, help="learning rate (default: 0.5)")
    parser.add_argument("--batch-size", type=int, default=25, help="images per step and process (default: 25)")
    args = parser.parse_args()
    if args.epochs < 1 or args.batch_size < 1:
        parser.error("--epochs and --batch-size must be at least 1")
    return args


def new_parameters() -> Parameters:
    """Weights and biases of two dense layers; the same in every process."""
    random = np.random.default_rng(SEED)
    return [
        (random.normal(0, (2 / inputs) ** 0.5, (inputs, outputs)).astype("float32"), np.zeros(outputs, "float32"))
        for inputs, outputs in ((64, 64), (64, 10))
    ]


def predict(parameters: Parameters, images: Any) -> jax.Array:
    (weights, bias), (last_weights, last_bias) = parameters
    return jax.nn.relu(images @ weights + bias) @ last_weights + last_bias


def cross_entropy(parameters: Parameters, images: Any, labels: Any) -> jax.Array:
    scores = jax.nn.log_softmax(predict(parameters, images))
    return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))


@jax.jit
def train_step(parameters: Parameters, images: Any, labels: Any, rate: float) -> tuple[jax.Array, Parameters]:
    """One step of gradient descent over the batches of all processes; returns the loss before it."""
    loss, gradients = jax.value_and_grad(cross_entropy)(parameters, images, labels)
    return loss, jax.tree.map(lambda old, gradient: old - rate * gradient, parameters, gradients)


def load_data() -> tuple[Any, Any]:
    """1797 images in a random order that is the same in every process; the last 297 are for the test."""
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    return (digits.data / 16.0).astype("float32")[order], digits.target[order]


if __name__ == "__main__":
    main()
