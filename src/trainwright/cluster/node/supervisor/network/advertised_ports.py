"""Programs whose listeners must be reached at the addresses of the machine.

Open MPI and Horovod tell their peers in other pods the addresses of the machine's interfaces, torchrun the name of the
host, each with a port that they found free. Such a port is one of the machine, as one that the kernel chooses. Pure;
standard library only.
"""

from __future__ import annotations

_MPI_RANK = (b"\0PMIX_RANK=", b"\0OMPI_COMM_WORLD_RANK=")
_MPI_FIRST_PORT = b"\0OMPI_MCA_btl_tcp_port_min_v4="
_MPI_DEFAULT_PORT = 1024
_MPI_PORTS = 1024
"""Open MPI tries one after the other from its first port on; no more ranks than this share a machine."""

_HOROVOD_ELASTIC = b"\0HOROVOD_ELASTIC=1\0"
_HOROVOD_SERVICES = (b"horovodrun", b"horovod.runner")
"""They choose a port at random."""

_TORCHRUN = (b"torchrun", b"torch.distributed.run")
_TORCHRUN_RANK = b"\0TORCHELASTIC_RUN_ID="
_FIRST_SEARCHED_PORT = 32768
"""torchrun lets the kernel choose a port and tells it to peers with the host's name, at `plain` that of the machine."""


def is_advertised(port: int, arguments: bytes, variables: bytes) -> bool:
    """True if a process with this command line and environment, as /proc shows them, tells others that it listens on
    the port."""
    variables = b"\0" + variables
    if _HOROVOD_ELASTIC in variables or _runs(arguments, _HOROVOD_SERVICES):
        return True
    if port >= _FIRST_SEARCHED_PORT and (_TORCHRUN_RANK in variables or _runs(arguments, _TORCHRUN)):
        return True
    if not any(rank in variables for rank in _MPI_RANK):
        return False
    chosen = variables.partition(_MPI_FIRST_PORT)[2].partition(b"\0")[0][:5]
    first = int(chosen) if chosen.isdigit() else _MPI_DEFAULT_PORT
    return first <= port < first + _MPI_PORTS


def _runs(arguments: bytes, programs: tuple[bytes, ...]) -> bool:
    """`/usr/bin/horovodrun`, or the module of `python -m horovod.runner.task_fn`."""
    return any(argument.rpartition(b"/")[2].startswith(programs) for argument in arguments.split(b"\0", 4)[:4])
