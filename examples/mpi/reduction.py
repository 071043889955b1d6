"""Computes pi with MPI: every process adds up a share of the terms, and `reduce` adds up the shares."""

import argparse
import math
import socket

from mpi4py import MPI


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--terms", type=int, default=1_000_000)
    options = parser.parse_args()
    world = MPI.COMM_WORLD

    width = 1 / options.terms
    share = sum(4 / (1 + ((term + 0.5) * width) ** 2) for term in range(world.rank, options.terms, world.size))
    print(f"process {world.rank} of {world.size} on {socket.gethostname()}: {share * width:.6f}", flush=True)
    pi = world.reduce(share * width, root=0)
    if world.rank == 0:
        print(f"pi is {pi:.10f}, the error {abs(pi - math.pi):.1e}", flush=True)


if __name__ == "__main__":
    main()
