"""Ends the pods of an embedded cluster that has been stopped, and shows how many are left."""

import sys

from trainwright.cli.console import Console
from trainwright.cluster.embedded import DataDir, running_pods

_PROGRESS_SECONDS = 0.2


def end_pods(data: DataDir, *, now: bool = False) -> tuple[int, int]:
    """Returns how many pods ended after SIGTERM, and how many were killed; `now` kills all of them."""
    pods = running_pods(data)
    if pods.total and not now:
        pods.stop()
        console, interrupted = Console.of(sys.stderr), False
        announced = sys.stderr.isatty()  # the live line says it there
        while True:
            try:
                if not announced:
                    announced = True
                    console.print(f"Stopping {count_pods(pods.total)}, at most {pods.seconds:.0f}s")
                console.live(f"Stopping {count_pods(pods.total)}: {pods.left} left, at most {pods.seconds:.0f}s")
                if pods.wait(_PROGRESS_SECONDS):
                    break
            except KeyboardInterrupt:
                if interrupted:
                    break
                interrupted = True
                console.print("Waiting for the pods to end by their grace period; Ctrl-C again kills them")
        console.live("")
    left = pods.kill()
    return pods.total - left, left


def count_pods(number: int) -> str:
    return "1 pod" if number == 1 else f"{number} pods"
