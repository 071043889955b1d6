"""Trains the network of train.py with MPI and measures its speed, with flags and output of tf_cnn_benchmarks."""

import argparse
import time

import numpy as np
from mpi4py import MPI
from sklearn.datasets import load_digits
from train import TRAINED, initial_weights, loss_and_gradient

BATCHES = 100
RATE = 0.5


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch_size", type=int, required=True)
    parser.add_argument("--variable_update", choices=["horovod"], required=True)
    options = parser.parse_args()
    world = MPI.COMM_WORLD
    if world.rank == 0:
        print(f"Model:       {options.model}")
        print(f"Batch size:  {options.batch_size * world.size} global")
        print(f"             {options.batch_size} per device")
        print(f"Num batches: {BATCHES}")
        print("Step\tImg/sec\ttotal_loss", flush=True)

    images, digits = load_digits(return_X_y=True)
    images = images / 16
    mine = np.arange(world.rank, TRAINED, world.size)
    weights = initial_weights()
    chance = np.random.default_rng(world.rank)
    start = time.monotonic()
    for step in range(1, BATCHES + 1):
        batch = chance.choice(mine, options.batch_size)
        loss, gradient = loss_and_gradient(weights, images[batch], digits[batch])
        sums = world.allreduce(np.append(gradient, loss)) / (options.batch_size * world.size)
        weights -= RATE * sums[:-1]
        if world.rank == 0 and (step == 1 or step % 10 == 0):
            speed = step * options.batch_size / (time.monotonic() - start)
            print(f"{step}\timages/sec: {speed:.1f}\t{sums[-1]:.3f}", flush=True)
    total = world.allreduce(BATCHES * options.batch_size / (time.monotonic() - start))
    print(
        f"process {world.rank} of {world.size} on {MPI.Get_processor_name()}: total images/sec: {total:.2f}", flush=True
    )


if __name__ == "__main__":
    main()
