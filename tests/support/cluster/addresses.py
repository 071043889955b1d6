"""Ranges of addresses for parts of a cluster, so that tests in several processes do not share any."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from trainwright.cluster.address_lock import AddressLock, candidates, lock_range
from trainwright.cluster.address_range import AddressRange

SERVICES = AddressRange(1).services
"""For API servers without a proxy: nothing listens on these addresses."""

OWN_ADDRESS = f"127.255.{os.getpid() // 200 % 200}.{os.getpid() % 200 + 1}"
"""Of this process; no cluster has the range."""


@contextmanager
def locked_addresses() -> Iterator[AddressLock]:
    """A range that no cluster uses, until the block ends."""
    lock = lock_range(secrets.token_hex(8), candidates(secrets.randbits(16), None))
    try:
        yield lock
    finally:
        lock.release()
