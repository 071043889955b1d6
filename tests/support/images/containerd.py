"""A containerd of its own, with ctr."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.kubernetes.controlplane import Daemon
from tests.support.waiting import wait_until


@dataclass(frozen=True)
class Containerd:
    socket: Path

    def ctr(self, *words: str | Path) -> str:
        command = ["ctr", "--address", str(self.socket), *map(str, words)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if answer.returncode:
            raise AssertionError(f"{command} ended with {answer.returncode}:\n{answer.stdout}{answer.stderr}")
        return answer.stdout


@contextmanager
def running_containerd(directory: Path) -> Iterator[Containerd]:
    directory.mkdir(parents=True, exist_ok=True)
    socket = directory / "c.sock"
    config = directory / "config.toml"
    config.write_text(
        f"""version = 2
root = "{directory}/root"
state = "{directory}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{directory}/opt"
"""
    )
    daemon = Daemon("containerd", "--config", config, log=directory / "log")
    containerd = Containerd(socket)
    try:
        wait_until(lambda: _answers(daemon, containerd))
        yield containerd
    finally:
        daemon.close()


def _answers(daemon: Daemon, containerd: Containerd) -> bool:
    daemon.check()
    try:
        containerd.ctr("version")
    except AssertionError:
        return False
    return True
