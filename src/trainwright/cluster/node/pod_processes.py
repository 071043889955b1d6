"""The processes of a pod's running containers, with the pids of the host."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwright.cluster.node.supervisor.files import read_state, stat_fields

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningContainer:
    container: str
    pid: int
    """The pid of its first process on the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodProcess:
    """A process of a container."""

    pid: int
    command: tuple[str, ...]
    cpu_seconds: float
    """Used so far, of all threads."""
    memory: int
    """Resident bytes; shared pages are counted in every process."""
    ended_cpu_seconds: float = 0.0
    """Used by its children that have ended, and by theirs."""


def running_containers(directory: Path) -> list[RunningContainer]:
    """The running containers of the pod in this directory."""
    try:
        state = read_state(str(directory))
    except OSError:
        return []
    statuses = [*state["initContainers"], *state["containers"]] if state is not None else []
    return [
        RunningContainer(container=status["name"], pid=status["process"])
        for status in statuses
        if status.get("process") and "running" in status["state"]
    ]


def process_trees(pids: Iterable[int], *, with_exec: bool = False) -> dict[int, list[PodProcess]]:
    """These processes, each with all its descendants, in the order of their pids. Reads /proc once.

    `with_exec`: they are the main processes of containers, and the first one of a pod has what was started by exec too,
    as mpirun starts its processes: other children of the pod's supervisor.
    """
    children: dict[int, list[int]] = {}
    parents: dict[int, int] = {}
    stats: dict[int, tuple[float, int, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (stat := _read_stat(int(entry.name))):
            parent, cpu, memory, ended = stat
            children.setdefault(parent, []).append(int(entry.name))
            parents[int(entry.name)] = parent
            stats[int(entry.name)] = (cpu, memory, ended)
    main = list(pids)
    roots = {pid: [pid] for pid in main}
    for supervisor in dict.fromkeys(parents[pid] for pid in main if pid in parents):
        if with_exec and _is_supervisor(supervisor):
            first = next(pid for pid in main if parents.get(pid) == supervisor)
            roots[first] += [pid for pid in children[supervisor] if pid not in roots]
    trees = {pid: sorted(below for root in found for below in _tree(root, children)) for pid, found in roots.items()}
    return {pid: [_process(below, *stats[below]) for below in tree if below in stats] for pid, tree in trees.items()}


def _is_supervisor(pid: int) -> bool:
    """False for the process that forks supervisors: its other children are other pods."""
    words = read_command(pid)
    return any(word.endswith("/supervise.py") for word in words) and not any("--fork-server" in word for word in words)


def _tree(pid: int, children: Mapping[int, list[int]]) -> list[int]:
    found, waiting = [], [pid]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], ())
    return found


def _process(pid: int, cpu_seconds: float, memory: int, ended: float) -> PodProcess:
    command = read_command(pid)
    return PodProcess(pid=pid, command=command, cpu_seconds=cpu_seconds, memory=memory, ended_cpu_seconds=ended)


def _read_stat(pid: int) -> tuple[int, float, int, float] | None:
    """Parent, seconds of CPU, resident bytes, and seconds of CPU of children that have ended."""
    try:
        fields = stat_fields(f"/proc/{pid}")
    except OSError:
        return None
    own, ended = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    return int(fields[1]), own / _CLOCK_TICKS, int(fields[21]) * _PAGE_SIZE, ended / _CLOCK_TICKS


def read_command(pid: int) -> tuple[str, ...]:
    """The words of the process's command line; none if it has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    except OSError:
        return ()
    return tuple(word.decode(errors="replace") for word in words)
