"""Learns to read handwritten digits with a parameter server that keeps the weights.

The data ships with scikit-learn, so nothing is downloaded. The chief runs the training: it hands out steps to workers
that are free. A worker reads the weights from the parameter server, computes gradients and updates the weights there,
without waiting for the other workers. Workers and parameter servers never end by themselves. A TFJob sets TF_CONFIG,
which has the addresses of all processes and the task of this one.
"""

import argparse
import os
from collections import Counter
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # errors only
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # the same numbers on every processor

import tensorflow as tf
from sklearn.datasets import load_digits

SEED = 7
TRAINING_IMAGES = 1500


def main() -> None:
    args = parse_arguments()
    # The model is too small to profit from a second thread per process.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    if not resolver.cluster_spec():
        raise SystemExit("TF_CONFIG is missing: this program needs a chief, a parameter server and workers")
    if resolver.task_type == "chief":
        train(args, resolver)
    else:
        serve(resolver)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the training images (default: 8)")
    parser.add_argument("--lr", type=float, default=0.2, help="learning rate (default: 0.2)")
    parser.add_argument("--batch-size", type=int, default=25, help="images per step (default: 25)")
    args = parser.parse_args()
    if args.epochs < 1 or args.batch_size < 1:
        parser.error("--epochs and --batch-size must be at least 1")
    return args


def serve(resolver: Any) -> None:
    print(f"{resolver.task_type} {resolver.task_id} waits for the chief", flush=True)
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    ).join()


def train(args: argparse.Namespace, resolver: Any) -> None:
    tasks = resolver.cluster_spec()
    workers, servers = tasks.num_tasks("worker"), tasks.num_tasks("ps")
    print(f"Chief with {workers} workers and {servers} parameter servers: ParameterServerStrategy", flush=True)
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    images, labels = load_data()
    tf.random.set_seed(SEED)
    with strategy.scope():
        model = DigitsNet()
    print(f"The weights are on {sorted({weights.device for weights in model.trainable_variables})}", flush=True)

    @tf.function
    def train_step(batches: Any) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs on a worker; returns its index and the loss."""
        loss = strategy.run(model.descend, (*next(batches), args.lr))
        return tf.distribute.coordinator.experimental_get_current_worker_index(), loss

    batches = iter(
        coordinator.create_per_worker_dataset(
            lambda: endless_batches(images[:TRAINING_IMAGES], labels[:TRAINING_IMAGES], args.batch_size)
        )
    )
    steps_by_worker: Counter[int] = Counter()
    for epoch in range(1, args.epochs + 1):
        steps = [coordinator.schedule(train_step, (batches,)) for _ in range(TRAINING_IMAGES // args.batch_size)]
        coordinator.join()
        results = [step.fetch() for step in steps]
        steps_by_worker.update(int(worker) for worker, _ in results)
        print(f"Epoch {epoch}/{args.epochs} loss={sum(loss for _, loss in results) / len(results):.4f}", flush=True)

    logits = model(images[TRAINING_IMAGES:])
    accuracy = tf.reduce_mean(tf.cast(tf.argmax(logits, axis=1) == labels[TRAINING_IMAGES:], tf.float32))
    for worker, steps_done in sorted(steps_by_worker.items()):
        print(f"Worker {worker} computed {steps_done} steps", flush=True)
    print(f"accuracy={accuracy:.4f}", flush=True)


class DigitsNet(tf.Module):
    """Two dense layers over 8 x 8 images. Created in the strategy's scope, its weights are on the parameter servers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [dense(64, 64), dense(64, 10)]

    def __call__(self, images: tf.Tensor) -> tf.Tensor:
        (weights, bias), (last_weights, last_bias) = self.layers
        return tf.nn.relu(images @ weights + bias) @ last_weights + last_bias

    def descend(self, images: tf.Tensor, labels: tf.Tensor, rate: float) -> tf.Tensor:
        """One step of gradient descent; returns the loss before it."""
        with tf.GradientTape() as tape:
            logits = self(images)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        variables = self.trainable_variables
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(rate * gradient)
        return loss


def dense(inputs: int, outputs: int) -> tuple[tf.Variable, tf.Variable]:
    spread = (2 / inputs) ** 0.5
    return tf.Variable(tf.random.normal((inputs, outputs), stddev=spread)), tf.Variable(tf.zeros(outputs))


def load_data() -> tuple[Any, Any]:
    """1797 images in a random order; the last 297 are for the test."""
    digits = load_digits()
    order = tf.random.experimental.stateless_shuffle(tf.range(len(digits.target)), seed=(SEED, SEED)).numpy()
    return (digits.data / 16.0).astype("float32")[order], digits.target[order]


def endless_batches(images: Any, labels: Any, batch_size: int) -> tf.data.Dataset:
    """Each worker has its own, in another random order."""
    return tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(TRAINING_IMAGES).repeat().batch(batch_size)


if __name__ == "__main__":
    main()
