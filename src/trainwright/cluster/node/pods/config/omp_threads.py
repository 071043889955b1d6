"""OMP_NUM_THREADS: how many threads a process of a pod computes with. Pure.

Without it every process of a job would start a thread per core, and they would mostly wait for each other.
"""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

from trainwright.objects import Object
from trainwright.objects.decimals import parse_decimal
from trainwright.objects.quantities import parse_quantity

_PROCESSES_FLAG = re.compile(r"--nproc[-_]per[-_]node(?:=(?P<value>.*))?")
_TORCHRUN = re.compile(r"\btorchrun\b|\btorch\.distributed\.(?:run|launch)\b")
_PROCESSES_VARIABLE = "PET_NPROC_PER_NODE"


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
