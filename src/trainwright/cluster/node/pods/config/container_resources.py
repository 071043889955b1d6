"""The resources of a container: the limits of its control group, and how many threads its programs start. Pure."""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil

from trainwright.cluster.node.supervisor.pod_json import LimitsJson
from trainwright.cluster.node.supervisor.sandbox.cgroups import PERIOD
from trainwright.objects import Object
from trainwright.objects.decimals import parse_decimal
from trainwright.objects.quantities import parse_amounts, parse_quantity

_LEAST_QUOTA = 1000
_LEAST_SHARES, _MOST_SHARES = 2, 262_144
_MOST_PROCESSES = 32_768
"""Processes and threads of a container with limits: enough for any program, too few for a fork bomb."""
_PROCESSES_FLAG = re.compile(r"--nproc[-_]per[-_]node(?:=(?P<value>.*))?")
_TORCHRUN = re.compile(r"\btorchrun\b|\btorch\.distributed\.(?:run|launch)\b")
_PROCESSES_VARIABLE = "PET_NPROC_PER_NODE"


def container_limits(container: Object) -> LimitsJson:
    """Empty if the container has neither limits nor requests of cpu or memory."""
    resources = container.get("resources") or {}
    limits, requests = parse_amounts(resources.get("limits") or {}), parse_amounts(resources.get("requests") or {})
    found: LimitsJson = {}
    if memory := limits.get("memory"):
        found["memory"] = ceil(memory)
    if cpu := limits.get("cpu"):
        found["cpuQuota"] = max(_LEAST_QUOTA, ceil(cpu * PERIOD))
    if cpu := requests.get("cpu") or limits.get("cpu"):
        found["cpuShares"] = min(_MOST_SHARES, max(_LEAST_SHARES, int(cpu * 1024)))
    if found:
        found["pids"] = _MOST_PROCESSES
    return found


def memory_limit(pod: Object) -> int | None:
    """The limit of the whole pod; None if a container has none."""
    limits = [container_limits(container).get("memory") for container in pod["spec"]["containers"]]
    return sum(limit for limit in limits if limit) if limits and all(limits) else None


def omp_threads(*, cores: int, replicas: int | None, processes: int | None, cpu: Fraction | None) -> int:
    """The cores of the machine divided by the processes of the job on it, but not more than the container's cpu.

    `replicas` is None for a pod that no job controls: it has its cpu limit or request, else one core. `processes` per
    pod is None for as many as there are cores.
    """
    if processes is None:
        return 1
    share = Fraction(cores, replicas) if replicas else cpu or Fraction(1)
    return max(1, int(min(share, cpu or share) / max(1, processes)))


def cpu_of(container: Object) -> Fraction | None:
    """The container's cpu limit, else its request, else None."""
    resources = container.get("resources") or {}
    for kind in ("limits", "requests"):
        if amount := (resources.get(kind) or {}).get("cpu"):
            return parse_quantity(amount)
    return None


def processes_per_pod(argv: Sequence[str], variables: Mapping[str, str]) -> int | None:
    """How many processes torchrun starts in the pod; None if it decides by the number of cores or GPUs.

    The variable is set for every pod, but only torchrun reads it.
    """
    is_torchrun = any(_TORCHRUN.search(word) for word in argv)
    value = variables.get(_PROCESSES_VARIABLE, "1") if is_torchrun else "1"
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if match := _PROCESSES_FLAG.fullmatch(word):
            value = match["value"] or following
            break
    return parse_decimal(value)
