"""A Docker daemon of its own, from the files of Debian's package docker.io, which is not installed."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.kubernetes.controlplane import Daemon
from tests.support.waiting import wait_until


def docker_files() -> Path:
    """Where `tools/install-image-tools` unpacks the package."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "trainwright" / "test-images" / "docker"


@dataclass(frozen=True)
class Docker:
    socket: Path

    def __call__(self, *words: str | Path) -> str:
        command = [str(docker_files() / "usr/bin/docker"), "-H", f"unix://{self.socket}", *map(str, words)]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        if answer.returncode:
            raise AssertionError(f"{command} ended with {answer.returncode}:\n{answer.stdout}{answer.stderr}")
        return answer.stdout


@contextmanager
def running_docker() -> Iterator[Docker]:
    """Without a network of its own, so that nothing of this machine changes."""
    with tempfile.TemporaryDirectory(prefix="docker-") as name:  # short: its sockets are deep below
        directory = Path(name)
        settings = directory / "daemon.json"
        settings.write_text("{}")
        docker = Docker(directory / "d.sock")
        places = ("--data-root", directory / "root", "--exec-root", directory / "exec", "--pidfile", directory / "pid")
        network = ("--iptables=false", "--ip6tables=false", "--bridge=none")
        flags = (*places, *network, "--storage-driver=vfs", "--config-file", settings, "-H", f"unix://{docker.socket}")
        daemon = Daemon(docker_files() / "usr/sbin/dockerd", *flags, log=directory / "log")
        try:
            wait_until(lambda: _answers(daemon, docker))
            yield docker
        finally:
            daemon.close()


def _answers(daemon: Daemon, docker: Docker) -> bool:
    daemon.check()
    try:
        docker("version")
    except AssertionError:
        return False
    return True
