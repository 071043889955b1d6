"""What bind, connect and sendto cost in a pod with ports of its own, against the same program outside of pods, in the
same run and in turns."""

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.processes import TRAINWRIGHT, embedded_cluster

ROUNDS = 5
PROGRAM = """
import json, socket, statistics, sys, threading, time

def median(call, count=400):
    seconds = []
    for _ in range(count):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds) * 1e6

def bind():
    with socket.socket() as own:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        own.bind(("0.0.0.0", 18998))

def connect(port):
    with socket.socket() as own:
        own.connect_ex(("127.0.0.1", port))

def accept():
    while True:
        server.accept()[0].close()

server = socket.create_server(("0.0.0.0", 18999), backlog=128)
threading.Thread(target=accept, daemon=True).start()
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("0.0.0.0", 18997))
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

def send():
    sender.sendto(b"x", ("127.0.0.1", 18997))
    receiver.recv(1)

calls = {
    "bind": bind,
    "connect to its own listener": lambda: connect(18999),
    "connect to a port without a listener": lambda: connect(1),
    "sendto itself": send,
}
print("FIGURES", json.dumps({name: median(call) for name, call in calls.items()}), flush=True)
"""


def main() -> None:
    figures: dict[str, dict[str, list[float]]] = {"in a pod": {}, "outside": {}}
    with tempfile.TemporaryDirectory() as name, embedded_cluster(Path(name) / "cluster"):
        directory = Path(name)
        (directory / "calls.py").write_text(PROGRAM)
        flags = ["--data-dir", str(directory / "cluster"), "--python", sys.executable]
        commands = {
            "in a pod": [*TRAINWRIGHT, "run", *flags, "calls.py"],
            "outside": [sys.executable, "calls.py"],
        }
        for _ in range(ROUNDS):
            for label, command in commands.items():
                for call, microseconds in _figures(command, directory).items():
                    figures[label].setdefault(call, []).append(microseconds)
    print(f"{'':40}{'in a pod':>12}{'outside':>12}{'more':>12}")
    for call, values in figures["in a pod"].items():
        inside, outside = statistics.median(values), statistics.median(figures["outside"][call])
        print(f"{call:40}{inside:>9.0f} us{outside:>9.0f} us{inside - outside:>9.0f} us")


def _figures(command: list[str], directory: Path) -> dict[str, float]:
    finished = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True)
    text = finished.stdout.partition("FIGURES ")[2].splitlines()[0]
    found: dict[str, float] = json.loads(text)
    return found
