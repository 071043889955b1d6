"""Random sequences of socket calls have the same results in a pod as in a network namespace of its own."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import socket_program
from tests.support.cluster.supervised_pods import container
from tests.support.thoroughness import THOROUGH

PYTHON = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
CASES = 2000 if THOROUGH else 60
SEED = int(os.environ.get("SOCKET_CALLS_SEED", "1"))

RAISE_LOOPBACK = """
import fcntl, socket, struct
with socket.socket() as own:
    name = struct.pack("16sH14x", b"lo", 0x1 | 0x40)
    fcntl.ioctl(own, 0x8914, name)
"""


_ACTIONS = ("open", "set", "bind", "bind", "listen", "connect", "begin", "exchange", "send", "receive", "close")


def random_case(seed: int, first_port: int) -> list[list[Any]]:
    """Steps with a few sockets and three ports, which no other case has.

    Left out is what a pod answers otherwise, as docs/reference/isolation.md says: a port that both dual-stack and
    IPv6-only sockets have, or both 0.0.0.0 and another loopback address, and IPv6 clients of IPv4 servers.
    """
    choose = random.Random(seed)
    kinds: list[str] = []
    dual = choose.random() < 0.5
    steps: list[list[Any]] = []

    def any_port() -> int:
        return first_port + choose.randrange(3)

    for _ in range(choose.randrange(4, 24)):
        action = choose.choice(_ACTIONS)
        if action == "open" or not kinds:
            kinds.append(choose.choice(["tcp4", "tcp4", "tcp6", "udp4", "udp6"]))
            steps.append(["open", kinds[-1]])
            if kinds[-1].endswith("6"):
                steps.append(["set", len(kinds) - 1, "only ipv6", int(not dual)])
            continue
        number = choose.randrange(len(kinds))
        six = kinds[number].endswith("6")
        hosts = ["any", "other", "foreign"] if six and dual else ["any", "loopback", "other", "foreign"]
        if action == "set":
            steps.append(["set", number, choose.choice(["reuse address", "reuse port"]), 1])
        elif action == "bind":
            port = 0 if choose.random() < 0.1 else any_port()
            host = choose.choice([*hosts, "any", "any"])
            steps.append(["bind", number, host, first_port + 3 if host == "other" else port])
        elif action in {"connect", "begin", "send"} and not six:
            if kinds[number] == "udp4" or action != "send":
                targets = ["loopback"] if kinds[number] == "udp4" else ["loopback", "loopback", "any"]
                steps.append([action, number, choose.choice(targets), any_port()])
        elif action == "exchange":
            steps.append(["exchange", number, choose.randrange(len(kinds))])
        elif action in {"listen", "receive", "close"}:
            steps.append([action, number])
    return steps


@pytest.fixture
def cases() -> list[list[list[Any]]]:
    return [random_case(SEED * 100_000 + number, 20_000 + number % 3000 * 4) for number in range(CASES)]


def in_namespace(path: Path) -> list[Any]:
    """The results in a new network namespace, whose loopback has all addresses of 127/8."""
    source = RAISE_LOOPBACK + Path(socket_program.__file__).read_text().replace("sys.argv[1]", repr(str(path)))
    users = [] if os.getuid() == 0 else ["--map-root-user"]
    command = ["unshare", *users, "--net", PYTHON, "-c", source]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert finished.returncode == 0, finished.stderr
    return [json.loads(line) for line in finished.stdout.splitlines()]


@pytest.mark.thorough("root-plain", "ordinary-plain")
def test_socket_calls_in_a_pod_have_the_results_of_a_network_of_its_own(
    runner: Any, address: str, cases: list[list[list[Any]]]
) -> None:
    path = runner.shared / "cases.json"
    path.write_text(json.dumps(cases))
    program = runner.shared / "program.py"
    program.write_text(Path(socket_program.__file__).read_text())
    mounts = [{"source": str(runner.shared), "target": str(runner.shared), "readOnly": False}]
    main = container(f"exec {PYTHON} {program} {path}", mounts=mounts)
    with runner.run(main, address=address, ownPorts=True) as pod:
        pod.wait()
    results = [json.loads(line) for line in pod.output()]

    expected = in_namespace(path)
    different = [
        (case, [pair for pair in zip(case, ours, theirs, strict=True) if pair[1] != pair[2]])
        for case, ours, theirs in zip(cases, results, expected, strict=True)
        if ours != theirs
    ]
    assert not different, "\n".join(map(str, different))
