"""Trains a network for handwritten digits with TensorFlow and writes summaries for TensorBoard."""

import argparse

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

TRAINED = 1500
HIDDEN = 64
MOMENTUM = 0.9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int, default=200)
    parser.add_argument("--learning_rate", type=float, default=0.001)
    parser.add_argument("--batch_size", type=int, default=100)
    parser.add_argument("--log_dir", default="/tmp/tensorflow/mnist/logs")
    options = parser.parse_args()

    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    chance = np.random.default_rng(1)
    shapes = ((64, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,))
    weights = [tf.Variable(chance.normal(0, 0.1, shape).astype(np.float32)) for shape in shapes]
    moves = [tf.Variable(tf.zeros(shape)) for shape in shapes]

    def scores(batch: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(batch @ weights[0] + weights[1]) @ weights[2] + weights[3]

    @tf.function
    def train(batch: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores(batch))
            loss = tf.reduce_mean(losses)
        for weight, move, gradient in zip(weights, moves, tape.gradient(loss, weights), strict=True):
            weight.assign_add(move.assign(MOMENTUM * move - options.learning_rate * gradient))
        return loss

    writers = {name: tf.summary.create_file_writer(f"{options.log_dir}/{name}") for name in ("train", "test")}
    for step in range(options.max_steps + 1):
        batch = chance.choice(TRAINED, options.batch_size)
        with writers["train"].as_default(step):
            tf.summary.write("cross_entropy", train(images[batch], digits[batch]))
        if step % 20 == 0:
            found = scores(images[TRAINED:]).numpy().argmax(axis=1)
            accuracy = (found == digits[TRAINED:]).mean()
            with writers["test"].as_default(step):
                tf.summary.write("accuracy", accuracy)
            print(f"Accuracy at step {step}: {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
