"""Learns to read handwritten digits with PaddlePaddle on several processes that average their gradients.

The data ships with scikit-learn, so nothing is downloaded. Every process trains on its own share of the images.
`python -m paddle.distributed.launch train.py` starts it: the launchers of all pods meet at PADDLE_MASTER, which a
PaddleJob sets, agree on ranks and tell them to this program. Without a launcher it runs as one process.
"""

import argparse
from typing import Any

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn
from paddle.nn.functional import cross_entropy
from sklearn.datasets import load_digits

SEED = 7
TRAINING_IMAGES = 1500
LOG_EVERY = 10  # steps


def main() -> None:
    args = parse_arguments()
    paddle.set_device("cpu")
    if dist.get_world_size() > 1:
        dist.init_parallel_env()
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"Rank {rank} of {world}: PaddlePaddle", flush=True)

    paddle.seed(SEED)
    images, labels = load_data()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    replica = paddle.DataParallel(model) if world > 1 else model
    optimizer = paddle.optimizer.SGD(args.lr, parameters=model.parameters())
    my_images, my_labels = images[rank:TRAINING_IMAGES:world], labels[rank:TRAINING_IMAGES:world]
    shuffle = np.random.default_rng(SEED + rank)
    for epoch in range(1, args.epochs + 1):
        order = shuffle.permutation(len(my_labels))
        for step in range(len(order) // args.batch_size):
            chosen = order[step * args.batch_size : (step + 1) * args.batch_size]
            loss = cross_entropy(replica(paddle.to_tensor(my_images[chosen])), paddle.to_tensor(my_labels[chosen]))
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            if rank == 0 and step % LOG_EVERY == 0:
                seen = step * args.batch_size * world
                print(f"Train Epoch: {epoch} [{seen}/{TRAINING_IMAGES}] loss={float(loss):.4f}", flush=True)

    # The weights are the same everywhere, so all processes print the same result.
    test_labels = labels[TRAINING_IMAGES:]
    with paddle.no_grad():
        scores = model(paddle.to_tensor(images[TRAINING_IMAGES:]))
        test_loss = float(cross_entropy(scores, paddle.to_tensor(test_labels)))
    accuracy = (scores.numpy().argmax(axis=1) == test_labels).mean()
    print(f"Rank {rank} of {world}: test loss={test_loss:.6f} accuracy={accuracy:.4f}", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains a small network on handwritten digits.")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the training images (default: 8)")
    parser.add_argument("--lr", type=float, default=0.5, help="learning rate (default: 0.5)")
    parser.add_argument("--batch-size", type=int, default=25, help="images per step and process (default: 25)")
    args = parser.parse_args()
    if args.epochs < 1 or args.batch_size < 1:
        parser.error("--epochs and --batch-size must be at least 1")
    return args


def load_data() -> tuple[Any, Any]:
    """1797 images in a random order that is the same in every process; the last 297 are for the test."""
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    return (digits.data / 16.0).astype("float32")[order], digits.target[order]


if __name__ == "__main__":
    main()
