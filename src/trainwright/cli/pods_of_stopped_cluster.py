"""Ends the pods of an embedded cluster that has been stopped, and shows how many are left."""

import contextlib
import math
import signal
import sys
from collections.abc import Iterator

from trainwright.cli.output.console import Console
from trainwright.cluster.facade import DataDir, running_pods

_PROGRESS_SECONDS = 0.2


def end_pods(data: DataDir, *, now: bool = False) -> tuple[int, int]:
    """Returns how many pods ended after SIGTERM, and how many were killed; `now`, or the second Ctrl-C, kills all."""
    pods = running_pods(data)
    if pods.total and not now:
        console, explained = Console.of(sys.stderr), False
        with _counted_interrupts() as interrupts:
            pods.stop()
            if not sys.stderr.isatty():
                console.print(f"Stopping {count_pods(pods.total)}, at most {math.ceil(pods.seconds)}s")
            while len(interrupts) < 2 and not pods.wait(_PROGRESS_SECONDS):
                if interrupts and not explained:
                    explained = True
                    console.print("Waiting for the pods to end by their grace period; Ctrl-C again kills them")
                console.live(f"Stopping {count_pods(pods.total)}: {pods.left} left, at most {math.ceil(pods.seconds)}s")
            console.live("")
    left = pods.kill()
    return pods.total - left, left


@contextlib.contextmanager
def _counted_interrupts() -> Iterator[list[int]]:
    """Every Ctrl-C adds an item. An exception could come while the answer to the last one is printed."""
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, before)


def count_pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"
