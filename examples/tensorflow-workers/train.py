"""Learns to read handwritten digits with several workers that average their gradients after every step.

The data ships with scikit-learn, so nothing is downloaded. Every worker trains on its own share of the images.
MultiWorkerMirroredStrategy finds the other workers in the environment variable TF_CONFIG, which a TFJob sets, and keeps
the weights of all workers equal. Without TF_CONFIG the program runs as one process.
"""
# ruff: noqa: E402 (the variables must be set before TensorFlow is imported)

import argparse
import json
import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # the same numbers on every processor

CONFIG = json.loads(os.environ.get("TF_CONFIG", "{}"))
WORKER = CONFIG.get("task", {}).get("index", 0)
WORKERS = len(CONFIG.get("cluster", {}).get("worker", ["this process"]))

# Printed before TensorFlow is imported, which can take seconds on a busy machine.
print(f"Worker {WORKER} of {WORKERS}: MultiWorkerMirroredStrategy", flush=True)

import tensorflow as tf
from sklearn.datasets import load_digits

SEED = 7
TRAINING_IMAGES = 1500
LOG_EVERY = 10  # steps


def main() -> None:
    args = parse_arguments()
    # The model is too small to profit from a second thread per process.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    # Before any other operation: the strategy starts the server for the other workers.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    images, labels = load_data()
    with strategy.scope():
        tf.random.set_seed(SEED)
        model = DigitsNet()

    @tf.function
    def train_step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        losses = strategy.run(model.descend, (images, labels, args.lr))
        return strategy.reduce("MEAN", losses, axis=None)

    shares = strategy.distribute_datasets_from_function(
        lambda _: my_share(images[:TRAINING_IMAGES], labels[:TRAINING_IMAGES], args.batch_size)
    )
    for epoch in range(1, args.epochs + 1):
        for step, (some_images, some_labels) in enumerate(shares):
            loss = train_step(some_images, some_labels)
            if WORKER == 0 and step % LOG_EVERY == 0:
                seen = step * args.batch_size * WORKERS
                print(f"Train Epoch: {epoch} [{seen}/{TRAINING_IMAGES}] loss={loss:.4f}", flush=True)

    # The weights are the same everywhere, so all workers print the same result.
    logits = model(images[TRAINING_IMAGES:])
    accuracy = tf.reduce_mean(tf.cast(tf.argmax(logits, axis=1) == labels[TRAINING_IMAGES:], tf.float32))
    test_loss = cross_entropy(logits, labels[TRAINING_IMAGES:])
    print(f"Worker {WORKER} of {WORKERS}: test loss={test_loss:.6f} accuracy={accuracy:.4f}", flush=True)
    # A sum over all workers, for which each waits: none exits while another may still need it.
    strategy.reduce("SUM", strategy.run(lambda: tf.ones(())), axis=None)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the training images (default: 8)")
    parser.add_argument("--lr", type=float, default=0.5, help="learning rate (default: 0.5)")
    parser.add_argument("--batch-size", type=int, default=25, help="images per step and worker (default: 25)")
    args = parser.parse_args()
    if args.epochs < 1 or args.batch_size < 1:
        parser.error("--epochs and --batch-size must be at least 1")
    return args


class DigitsNet(tf.Module):
    """Two dense layers over 8 x 8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [dense(64, 64), dense(64, 10)]

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        (weights, bias), (last_weights, last_bias) = self.layers
        return tf.nn.relu(images @ weights + bias) @ last_weights + last_bias

    def descend(self, images: tf.Tensor, labels: tf.Tensor, rate: float) -> tf.Tensor:
        """One step of gradient descent; returns the loss before it."""
        with tf.GradientTape() as tape:
            loss = cross_entropy(self(images), labels)
        variables = self.trainable_variables
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(rate * gradient)  # the strategy subtracts the mean over all workers
        return loss


def dense(inputs: int, outputs: int) -> tuple[tf.Variable, tf.Variable]:
    spread = (2 / inputs) ** 0.5
    mean = tf.VariableAggregation.MEAN
    weights = tf.Variable(tf.random.normal((inputs, outputs), stddev=spread), aggregation=mean)
    return weights, tf.Variable(tf.zeros(outputs), aggregation=mean)


def cross_entropy(logits: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def load_data() -> tuple[Any, Any]:
    """1797 images in a random order that is the same in every process; the last 297 are for the test."""
    digits = load_digits()
    order = tf.random.experimental.stateless_shuffle(tf.range(len(digits.target)), seed=(SEED, SEED)).numpy()
    return (digits.data / 16.0).astype("float32")[order], digits.target[order]


def my_share(images: Any, labels: Any, batch_size: int) -> tf.data.Dataset:
    """Every worker needs the same number of steps, so incomplete batches are left out."""
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shard(WORKERS, WORKER)
    return dataset.shuffle(TRAINING_IMAGES, seed=SEED).batch(batch_size, drop_remainder=True)


if __name__ == "__main__":
    main()
