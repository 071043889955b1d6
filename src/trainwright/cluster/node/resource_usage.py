"""Measures CPU and memory of pods and of this machine, only when a client asks: between requests nothing runs."""

import asyncio
import os
import time
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainwright.cluster.node.pod_processes import PodProcess, process_trees, running_containers
from trainwright.cluster.node.records.log_files import find_pod
from trainwright.objects.kinds.resource_usage import Usage, UsageSample

_SHORTEST_WINDOW = 1.0
"""The kernel counts in hundredths of a second, so a shorter one would be inexact."""

_LONGEST_WINDOW = 60.0
"""An older measurement would hide what happens now."""

_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class _Measurement:
    """What was used so far, at one moment."""

    moment: float
    machine_cpu: float
    cpu: dict[tuple[str, str], float]
    """Seconds, by uid and container."""
    memory: dict[tuple[str, str], int]


class NodeUsage:
    """`directory` is the node's, the same as that of the agent."""

    def __init__(self, directory: Path) -> None:
        self._node = directory
        self._last: _Measurement | None = None

    async def read(self, uids: Collection[str]) -> UsageSample:
        """The CPU is what was used since the last request, or within the next second if that was long ago."""
        before, now = self._last, await asyncio.to_thread(_measure, self._node, list(uids))
        if before is None or not _SHORTEST_WINDOW <= now.moment - before.moment <= _LONGEST_WINDOW:
            before = now
            await asyncio.sleep(_SHORTEST_WINDOW)
            now = await asyncio.to_thread(_measure, self._node, list(uids))
        self._last = now
        return _sample(before, now)


def _sample(before: _Measurement, now: _Measurement) -> UsageSample:
    window = now.moment - before.moment
    pods: dict[str, dict[str, Usage]] = {}
    for (uid, container), seconds in now.cpu.items():
        used = max(0.0, seconds - before.cpu.get((uid, container), 0.0))
        pods.setdefault(uid, {})[container] = Usage(used / window, now.memory[uid, container])
    machine = Usage(max(0.0, now.machine_cpu - before.machine_cpu) / window, _machine_memory())
    return UsageSample(datetime.now(UTC), window, machine, pods)


def _measure(node: Path, uids: list[str]) -> _Measurement:
    running = {uid: running_containers(find_pod(node, uid)) for uid in uids}
    pids = {(uid, found.container): found.pid for uid, containers in running.items() for found in containers}
    moment = time.monotonic()
    trees = process_trees(pids.values(), with_exec=True)
    return _Measurement(
        moment,
        _machine_cpu(),
        {
            key: sum(process.cpu_seconds + process.ended_cpu_seconds for process in trees[pid])
            for key, pid in pids.items()
        },
        {key: sum(map(_memory, trees[pid])) for key, pid in pids.items()},
    )


def _memory(process: PodProcess) -> int:
    """Its share of the memory: pages that several processes use are divided among them."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return process.memory
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), process.memory)


def _machine_cpu() -> float:
    """Seconds that all processors have worked since the machine was started."""
    user, nice, system, _idle, _waiting, *others = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9])
    return (user + nice + system + sum(others)) / _CLOCK_TICKS


def _machine_memory() -> int:
    lines = (line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    kilobytes = {name: int(value.split()[0]) for name, value in lines}
    return (kilobytes["MemTotal"] - kilobytes["MemAvailable"]) * 1024
