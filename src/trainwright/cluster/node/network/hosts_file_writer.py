"""Writes the hosts files of pods after the names in them have changed."""

import asyncio
from collections.abc import Callable

from trainwright.cluster.node.network.pod_network import PodNetwork


class HostsFileWriter:
    """Changes that come together are written once; a rewrite that must wait is done later."""

    def __init__(self, network: PodNetwork, *, on_names_changed: Callable[[], None]) -> None:
        self._network = network
        self._on_names_changed = on_names_changed
        self._later: asyncio.TimerHandle | None = None

    def write_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._write)

    def close(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def _write(self) -> None:
        if self._network.write_hosts_files():
            self._on_names_changed()
        self.close()
        if (delay := self._network.rewrite_delay) is not None:
            self._later = asyncio.get_running_loop().call_later(delay, self._write)
