"""The network, mount and process namespaces of a real cluster, held by one process.

With that process end all others, the mounts and the network: nothing of the cluster is left, however the tests end.
"""

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.kubernetes.controlplane import Daemon

_SECONDS = 20.0
_CLONE_NEWNET = 0x40000000
_CGROUP = "trainwright-node"
_ENVIRONMENT = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
# What the kubelet wants to write. They belong to no namespace, so it gets files that look like them.
_KERNEL_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


class Holder:
    """`directory` is visible inside and outside; `directory/data`, /run, /var/log and /var/lib exist inside alone."""

    def __init__(self, directory: Path, node_address: str, services: str) -> None:
        self.directory = directory
        (directory / "data").mkdir()
        self._write_kernel_settings()
        self._process = Daemon(
            *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *("--propagation", "private", "sh", "-c", self._script(node_address, services)),
            log=directory / "holder.log",
            env=_ENVIRONMENT,
        )
        self._wait_until_ready()
        self.pid = self._child()

    def _write_kernel_settings(self) -> None:
        for name, value in _KERNEL_SETTINGS.items():
            path = self.directory / "sys" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")

    def _script(self, address: str, services: str) -> str:
        mounts = [f"mount -t tmpfs t {path}" for path in ("/run", "/var/log", "/var/lib", self.directory / "data")]
        settings = [f"mount --bind {self.directory}/sys/{name} /proc/sys/{name}" for name in _KERNEL_SETTINGS]
        network = [
            "ip link set lo up",
            "ip link add twbr0 type bridge",
            f"ip address add {address}/24 dev twbr0",
            "ip link set twbr0 up",
            # A bridge without a carrier has no valid routes.
            "ip link add carrier0 type veth peer name carrier1",
            "ip link set carrier0 master twbr0",
            "ip link set carrier0 up",
            "ip link set carrier1 up",
            f"ip route replace {services} dev twbr0",
            "ip route replace default dev twbr0",
            "echo 1 > /proc/sys/net/ipv4/ip_forward",
            "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet",
        ]
        steps = [*mounts, "mkdir /run/netns", *settings, *network, f"touch {self.directory}/ready"]
        # The shell is process 1 inside and reaps orphans.
        return f"{' && '.join(steps)} || exit 1; while :; do sleep 3600; done"

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + _SECONDS
        while not (self.directory / "ready").exists():
            self._process.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"the namespaces were not ready:\n{self._process.log.read_text()}")
            time.sleep(0.01)

    def _child(self) -> int:
        (child,) = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return int(child)

    def command(self, *words: str | Path) -> list[str]:
        """The command line that runs these words inside."""
        return ["nsenter", f"--target={self.pid}", "--net", "--mount", "--pid", "--", *(str(word) for word in words)]

    def daemon(self, *words: str | Path, name: str) -> Daemon:
        return Daemon(*self.command(*words), log=self.directory / f"{name}.log", env=_ENVIRONMENT)

    def run(self, *words: str | Path) -> str:
        done = subprocess.run(self.command(*words), env=_ENVIRONMENT, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(map(str, words))} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def enter_network(self) -> None:
        """Moves the calling thread, and the processes that it starts, into the network of the cluster."""
        descriptor = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(descriptor, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(descriptor)

    def processes(self) -> list[int]:
        """All processes inside but those of the pods, which have process namespaces of their own."""
        inside = _namespace_of(Path(f"/proc/{self.pid}"))
        return [int(entry.name) for entry in Path("/proc").iterdir() if _namespace_of(entry) == inside]

    def close(self) -> None:
        """Kills everything inside. The kernel ends process 1 of a namespace, and so the holder, after all others."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait(_SECONDS)
        self._process.close()


def _namespace_of(process: Path) -> str | None:
    try:
        return str((process / "ns" / "pid").readlink())
    except OSError:  # not a process, or one that has ended
        return None


@contextmanager
def cgroup_of_the_node() -> Iterator[str]:
    """A cgroup in every hierarchy below which the kubelet makes those of its pods; its path from each root."""
    roots = _hierarchies()
    for root in roots:
        for left in root.glob(f"{_CGROUP}-*"):  # of tests that were killed
            if not Path(f"/proc/{left.name.rpartition('-')[2]}").exists():
                _remove_cgroup(left)
    name = f"{_CGROUP}-{os.getpid()}"
    for root in roots:
        (group := root / name).mkdir()
        for setting in ("cpuset.cpus", "cpuset.mems"):  # of version 1: empty in a new cgroup, and then nothing can run
            if (root / setting).exists():
                (group / setting).write_text((root / setting).read_text())
    try:
        yield f"/{name}"
    finally:
        for root in roots:
            _remove_cgroup(root / name)


def _hierarchies() -> list[Path]:
    """The mounted hierarchies of version 1, and that of version 2."""
    fields = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    found = [Path(path) for _, path, kind, *_ in fields if kind in {"cgroup", "cgroup2"}]
    return list(dict.fromkeys(found))


def _remove_cgroup(group: Path) -> None:
    deadline = time.monotonic() + _SECONDS
    for below in sorted((path for path in group.rglob("*") if path.is_dir()), key=lambda path: -len(path.parts)):
        _remove_when_empty(below, deadline)
    _remove_when_empty(group, deadline)


def _remove_when_empty(group: Path, deadline: float) -> None:
    while True:
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:  # processes that were killed leave their cgroup a moment later
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
