"""Learns to read handwritten digits with boosted trees, built by several processes together.

The data ships with scikit-learn, so nothing is downloaded. Every process has its own share of the images; for each
split of a tree XGBoost adds up the histograms of all of them. The processes meet at the tracker, which rank 0 runs. An
XGBoostJob sets MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK; without them the program runs as one process.
"""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

RANK = int(os.environ.get("RANK", "0"))
WORLD_SIZE = int(os.environ.get("WORLD_SIZE", "1"))

# Printed before XGBoost is imported, which can take seconds on a busy machine.
print(f"Rank {RANK} of {WORLD_SIZE}: XGBoost", flush=True)

import numpy as np  # noqa: E402
import xgboost  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from xgboost import collective  # noqa: E402
from xgboost.tracker import RabitTracker  # noqa: E402

SEED = 7
TRAINING_IMAGES = 1500


def main() -> None:
    args = parse_arguments()
    images, labels = load_data()
    mine = slice(RANK, TRAINING_IMAGES, WORLD_SIZE)
    with communicator():
        print(f"Rank {collective.get_rank()} of {collective.get_world_size()}: connected", flush=True)
        training = xgboost.DMatrix(images[mine], labels[mine])
        booster = xgboost.train(
            {"objective": "multi:softprob", "num_class": 10, "max_depth": 4, "eta": args.lr, "nthread": 1},
            training,
            num_boost_round=args.rounds,
            evals=[(training, "train")],
            verbose_eval=False,
            callbacks=[Progress(args.rounds)],
        )
    # The trees are the same everywhere, so all processes print the same result.
    scores = booster.predict(xgboost.DMatrix(images[TRAINING_IMAGES:]))
    test_labels = labels[TRAINING_IMAGES:]
    test_loss = -np.log(scores[np.arange(len(test_labels)), test_labels]).mean()
    accuracy = (scores.argmax(axis=1) == test_labels).mean()
    print(f"Rank {RANK} of {WORLD_SIZE}: test loss={test_loss:.6f} accuracy={accuracy:.4f}", flush=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Trains boosted trees on handwritten digits.")
    parser.add_argument("--rounds", type=int, default=20, help="rounds, with ten trees each (default: 20)")
    parser.add_argument("--lr", type=float, default=0.4, help="learning rate (default: 0.4)")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    return args


@contextmanager
def communicator() -> Iterator[None]:
    """Connects this process with the others; rank 0 runs the tracker at which they meet."""
    if WORLD_SIZE == 1:
        yield
        return
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    xgboost.set_config(verbosity=0)  # no warnings while the tracker does not listen yet
    tracker = None
    if RANK == 0:
        tracker = RabitTracker(n_workers=WORLD_SIZE, host_ip="0.0.0.0", port=port, sortby="task")  # noqa: S104
        tracker.start()
    # The tracker orders the processes by their task ids. It may start later than this process, hence the retries.
    settings = {"dmlc_tracker_uri": address, "dmlc_tracker_port": port, "dmlc_task_id": f"{RANK:06}", "dmlc_retry": 60}
    with collective.CommunicatorContext(**settings):
        yield
    if tracker:
        tracker.wait_for()


class Progress(xgboost.callback.TrainingCallback):
    """Prints the loss of every round. XGBoost computes it over the images of all processes."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:  # noqa: ARG002 (XGBoost calls it)
        if RANK == 0:
            print(f"Round: [{epoch + 1}/{self.rounds}] loss={evals_log['train']['mlogloss'][-1]:.4f}", flush=True)
        return False


def load_data() -> tuple[Any, Any]:
    """1797 images in a random order that is the same in every process; the last 297 are for the test."""
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    return digits.data[order], digits.target[order]


if __name__ == "__main__":
    main()
