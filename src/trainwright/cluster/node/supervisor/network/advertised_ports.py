"""Programs whose listeners must be reached at the addresses of the machine.

Open MPI and Horovod tell their peers in other pods the addresses of the machine's interfaces, each with a port that
they found free. Such a port is one of the machine, as one that the kernel chooses. Pure; standard library only.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing takes four milliseconds at the start of every pod
if TYPE_CHECKING:
    from collections.abc import Sequence

_MPI_RANK = (b"PMIX_RANK=", b"OMPI_COMM_WORLD_RANK=")
_MPI_FIRST_PORT = b"OMPI_MCA_btl_tcp_port_min_v4="
_MPI_DEFAULT_PORT = 1024
_MPI_PORTS = 1024
"""Open MPI tries one after the other from its first port on; no more ranks than this share a machine."""

_HOROVOD_ELASTIC = b"HOROVOD_ELASTIC=1"
_HOROVOD_SERVICES = (b"horovodrun", b"horovod.runner")
"""They choose a port at random."""


def is_advertised(port: int, arguments: Sequence[bytes], variables: Sequence[bytes]) -> bool:
    """True if a process with this command line and environment tells others that it listens on the port."""
    if _HOROVOD_ELASTIC in variables or any(_is_service(argument) for argument in arguments[:4]):
        return True
    if not any(variable.startswith(_MPI_RANK) for variable in variables):
        return False
    chosen = [variable[len(_MPI_FIRST_PORT) :] for variable in variables if variable.startswith(_MPI_FIRST_PORT)]
    first = int(chosen[0]) if chosen and chosen[0].isdigit() else _MPI_DEFAULT_PORT
    return first <= port < first + _MPI_PORTS


def _is_service(argument: bytes) -> bool:
    """`/usr/bin/horovodrun`, or the module of `python -m horovod.runner.task_fn`."""
    return argument.rpartition(b"/")[2].startswith(_HOROVOD_SERVICES)
