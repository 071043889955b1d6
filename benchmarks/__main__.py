"""`python -m benchmarks [NAME…]` runs the named benchmarks, or all of them, and prints a table for each."""

import sys

from benchmarks import (
    commands,
    first_message,
    first_step,
    follow_logs,
    images,
    node,
    rank_start,
    socket_calls,
    startup,
)
from benchmarks.operator import throughput

BENCHMARKS = {
    "startup": startup.main,
    "commands": commands.main,
    "first-step": first_step.main,
    "first-message": first_message.main,
    "rank-start": rank_start.main,
    "follow-logs": follow_logs.main,
    "node": node.main,
    "socket-calls": socket_calls.main,
    "images": images.main,
    "operator": throughput.main,
}


def main() -> None:
    names = sys.argv[1:] or list(BENCHMARKS)
    if unknown := [name for name in names if name not in BENCHMARKS]:
        sys.exit(f"unknown benchmark {unknown[0]!r}: choose from {', '.join(BENCHMARKS)}")
    for name in names:
        print(f"\n== {name}", flush=True)
        BENCHMARKS[name]()


if __name__ == "__main__":
    main()
