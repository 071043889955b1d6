"""What an embedded cluster leaves on this machine: processes, mounts, control groups, sockets and files."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.cluster.node.supervisor.files import CGROUPS_FILE, read_json

_TEMPORARY = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))
_INODE_COLUMNS = {"unix": 6, "tcp": 9, "tcp6": 9, "udp": 9, "udp6": 9}


@dataclass
class Footprint:
    """Of a running cluster; later it says what is still there. `marker` is in the environment of its processes, and in
    the names of files that its pods make."""

    data: Path
    marker: str
    _cgroups: list[str] = field(init=False)
    _sockets: set[str] = field(init=False)

    def __post_init__(self) -> None:
        directories = read_json(str(self.data / "node" / CGROUPS_FILE), default={}).get("cgroups", {})
        self._cgroups = sorted(set(directories.values()))
        links = [link for process in self._own_processes() for link in _links(process)]
        self._sockets = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}

    def found(self) -> list[str]:
        """One line for each thing; its first word says what it is."""
        words = self._words
        lines = [f"process {process.name}: {_command(process)}" for process in self._own_processes()]
        lines += [f"mount {line}" for line in _mounts() if any(word in line.encode() for word in words)]
        lines += [f"cgroup {path}" for path in self._cgroups if Path(path).exists()]
        for table, column in _INODE_COLUMNS.items():
            for line in (Path("/proc/net") / table).read_text().splitlines()[1:]:
                if line.split()[column] in self._sockets:
                    lines.append(f"socket {table} {line}")
        for directory in _TEMPORARY:
            lines += [f"file {path}" for path in directory.iterdir() if self.marker in path.name]
        return [*lines, *(f"file {path}" for path in self._unfinished_files())]

    @property
    def _words(self) -> tuple[bytes, bytes]:
        return os.fsencode(self.data), self.marker.encode()

    def _own_processes(self) -> list[Path]:
        """By command line, environment, working directory and open files."""
        found = []
        for process in _processes():
            try:
                texts = [(process / "cmdline").read_bytes(), (process / "environ").read_bytes()]
            except OSError:
                continue  # it has ended, or belongs to another user
            texts += [os.fsencode(link) for link in _links(process)]
            if any(word in text for word in self._words for text in texts):
                found.append(process)
        return found

    def _unfinished_files(self) -> Iterator[Path]:
        """Files of the data directory that only exist while something is written, or while a process runs."""
        for directory, directories, names in os.walk(self.data):
            for name in [*directories, *names]:
                path = Path(directory, name)
                if path.is_socket() or name.endswith((".tmp", ".new", "~")) or _has_random_suffix(name):
                    yield path


def _processes() -> Iterator[Path]:
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            yield process


def _links(process: Path) -> list[str]:
    try:
        return [str(link.readlink()) for link in (process / "cwd", *(process / "fd").iterdir())]
    except OSError:
        return []


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text(errors="replace").replace("\0", " ")[:200]
    except OSError:
        return "has just ended"


def _mounts() -> Iterator[str]:
    """The lines of every mount namespace."""
    seen = set()
    for process in _processes():
        try:
            namespace = (process / "ns" / "mnt").readlink()
            if namespace not in seen:
                seen.add(namespace)
                yield from (process / "mountinfo").read_text(errors="replace").splitlines()
        except OSError:
            continue


def _has_random_suffix(name: str) -> bool:
    """`.token.x8kj2l1p`. Volumes have `..data` and directories that are named after times."""
    return name.startswith(".") and not name.startswith("..") and len(name.rpartition(".")[2]) == 8
