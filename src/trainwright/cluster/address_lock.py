"""Chooses and locks the range of addresses of a cluster, so that no other cluster of this machine uses it.

The locks are abstract Unix sockets: like the addresses they belong to a network namespace, they need no file, and they
work between users. The process of a cluster holds one that names the range. The pods outlive this process, so their
supervisors inherit a second one, the mark, which names the cluster too: it keeps other clusters away, and lets the same
cluster have the range again.
"""

import errno
import hashlib
import os
import secrets
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from trainwright.cluster.address_range import NUMBERS, AddressRange
from trainwright.cluster.datadir import ClusterError, DataDir

_NAME = "trainwright-addresses-127."


class AddressLock:
    """`mark` is the descriptor for supervisors. It is not inherited by itself."""

    def __init__(self, addresses: AddressRange, lock: socket.socket, mark: socket.socket) -> None:
        self.addresses = addresses
        self._lock = lock
        self._mark = mark

    @property
    def mark(self) -> int:
        return self._mark.fileno()

    def release(self) -> None:
        """Supervisors that have inherited the mark keep the range for the next start of the cluster."""
        self._lock.close()
        self._mark.close()


def lock_addresses(data: DataDir) -> AddressLock:
    """The range of the last start if it is free, else another one, which is remembered."""
    before = data.remembered_addresses()
    path = os.fsencode(os.path.realpath(data.path))
    cluster = hashlib.sha256(data.session_secret() + path).hexdigest()[:16]
    start = int.from_bytes(hashlib.sha256(b"%d:%b" % (os.getuid(), path)).digest()[:8])
    found = lock_range(cluster, candidates(start, before))
    if found.addresses != before:
        data.remember_addresses(found.addresses)
    return found


def lock_range(cluster: str, ranges: Iterable[AddressRange]) -> AddressLock:
    """Locks the first of `ranges` that no other cluster uses; `cluster` is the id of this one."""
    marked = marked_ranges(_bound_names(), cluster)
    for addresses in ranges:
        if addresses in marked:
            continue
        lock = _bind(f"{_NAME}{addresses.number}")
        if lock is None:
            continue
        if addresses in marked_ranges(_bound_names(), cluster):  # marked and unlocked meanwhile
            lock.close()
            continue
        while (mark := _bind(f"{_NAME}{addresses.number}-{cluster}-{secrets.token_hex(4)}")) is None:
            pass
        return AddressLock(addresses, lock, mark)
    raise ClusterError(
        f"all ranges of addresses ({AddressRange(NUMBERS[0])} to {AddressRange(NUMBERS[-1])}) are in use by other "
        "clusters of this machine: stop one and its pods with `trainwright down`; "
        f"`ss -xap | grep {_NAME}` lists the processes"
    )


def candidates(start: int, preferred: AddressRange | None) -> Iterator[AddressRange]:
    """All ranges, once each: `preferred`, then the others from number `start` on."""
    if preferred is not None:
        yield preferred
    for step in range(len(NUMBERS)):
        found = AddressRange(NUMBERS[(start + step) % len(NUMBERS)])
        if found != preferred:
            yield found


def marked_ranges(names: Iterable[str], cluster: str) -> set[AddressRange]:
    """The ranges that pods of other clusters use, by the names of sockets."""
    found = set()
    for name in names:
        number, _, owner = name.removeprefix(_NAME).partition("-")
        is_mark = name.startswith(_NAME) and number.isdecimal() and len(number) <= 3 and owner
        if is_mark and owner.partition("-")[0] != cluster:
            found.add(AddressRange(int(number)))
    return found


def _bound_names() -> Iterator[str]:
    """The names of abstract sockets in this network namespace; none where the kernel does not show them."""
    try:
        lines = Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        fields = line.split(maxsplit=7)
        if len(fields) == 8 and fields[7].startswith("@"):
            yield fields[7][1:]


def _bind(name: str) -> socket.socket | None:
    """None if another socket has the name. Nothing can connect to it, because it does not listen."""
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        bound.bind(f"\0{name}")
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise ClusterError(f"cannot lock a range of addresses: {error.strerror}") from error
    return bound
