"""Trains a network for handwritten digits: the weights are on the parameter server, two workers change them.

TF_CONFIG says who is who. Worker 0 initialises the weights; a parameter server serves until it is deleted.
"""

import json
import os

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

v1 = tf.compat.v1

TRAINED = 1500
HIDDEN = 64
STEPS = 150
"""Of each worker."""
RATE = 0.3


def main() -> None:
    config = json.loads(os.environ["TF_CONFIG"])
    role, index = config["task"]["type"], config["task"]["index"]
    server = tf.distribute.Server(config["cluster"], job_name=role, task_index=index)
    if role == "ps":
        print(f"ps {index} serves {server.target}", flush=True)
        server.join()
    train(config["cluster"], index, server.target)


def train(cluster: dict[str, list[str]], index: int, target: str) -> None:
    workers = len(cluster["worker"])
    images, digits = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    mine = np.arange(index, TRAINED, workers)
    v1.disable_eager_execution()
    with v1.device(v1.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{index}")):
        batch = v1.placeholder(tf.float32, (None, 64))
        labels = v1.placeholder(tf.int64, (None,))
        hidden = tf.nn.relu(layer("hidden", batch, HIDDEN))
        scores = layer("scores", hidden, 10)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(scores, axis=1), labels), tf.float32))
        change = v1.train.GradientDescentOptimizer(RATE).minimize(loss, v1.train.get_or_create_global_step())

    # Without the filter each worker would wait for the other one, which may have finished.
    filters = v1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"])
    chance = np.random.default_rng(index)
    with v1.train.MonitoredTrainingSession(target, is_chief=index == 0, config=filters) as session:
        for step in range(1, STEPS + 1):
            chosen = chance.choice(mine, 100)
            _, value = session.run((change, loss), {batch: images[chosen], labels: digits[chosen]})
            if step % 30 == 0:
                print(f"worker {index} of {workers}: [{step}/{STEPS}] loss={value:.4f}", flush=True)
        result = session.run(accuracy, {batch: images[TRAINED:], labels: digits[TRAINED:]})
    print(f"worker {index} of {workers}: accuracy={result:.4f}", flush=True)


def layer(name: str, values: tf.Tensor, width: int) -> tf.Tensor:
    with v1.variable_scope(name):
        shape = (values.shape[1], width)
        weights = v1.get_variable("weights", shape, initializer=v1.random_normal_initializer(stddev=0.1, seed=1))
        return values @ weights + v1.get_variable("bias", (width,), initializer=v1.zeros_initializer())


if __name__ == "__main__":
    main()
