"""The limits of a container for its control group, from its resources. Pure."""

from math import ceil

from trainwright.cluster.node.supervisor.pod_json import LimitsJson
from trainwright.cluster.node.supervisor.sandbox.cgroups import PERIOD
from trainwright.objects import Object
from trainwright.objects.quantities import parse_amounts

_LEAST_QUOTA = 1000
_LEAST_SHARES, _MOST_SHARES = 2, 262_144
_MOST_PROCESSES = 32_768
"""Processes and threads of a container with limits: enough for any program, too few for a fork bomb."""


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
