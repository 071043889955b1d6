"""The ports that are forwarded for each Service or pod: opens, changes and closes their forwarders.

A pod with ports of its own never listens at the address of a Service. A pod with those of the machine may listen on all
addresses, which a forwarder at the same port would prevent: there the pod listens first. If it then listens on all
addresses it answers at the forwarded one itself, and nothing has to be forwarded.
"""

import asyncio
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from trainwright.cluster.linux.listening_sockets import ANY, find_holder, find_listener, read_listeners
from trainwright.cluster.proxy.forwarded_ports import ForwardedPort
from trainwright.cluster.proxy.forwarder import ConnectionLimit, Forwarder
from trainwright.kube.controller.object_key import ObjectKey
from trainwright.kube.controller.outcome import Done, Outcome, RequeueAfter

_FIRST_WAIT, _LONGEST_WAIT = 0.05, 10.0
"""Seconds between looking whether a pod listens."""
_TAKEN_SECONDS = 5.0
"""Until a port that another process has is tried again."""


@dataclass(frozen=True, slots=True)
class Failure:
    port: ForwardedPort
    error: OSError
    holder: str
    """The process that listens on the port; empty if it is unknown, or cannot be inspected by this user."""


@dataclass(slots=True)
class Update:
    failures: list[Failure] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome:
        return RequeueAfter(min(self.delays)) if self.delays else Done()


class PortForwards:
    def __init__(self, limit: ConnectionLimit) -> None:
        self._limit = limit
        self._forwarders: dict[ObjectKey, dict[tuple[str, int], Forwarder]] = {}
        self._closing: list[Forwarder] = []
        """They no longer listen, but may have connections."""
        self._waits: dict[ObjectKey, float] = {}

    async def update(self, key: ObjectKey, ports: Iterable[ForwardedPort]) -> Update:
        """Forwards these ports for the object, and no others. Existing connections stay."""
        wanted = {port.listener: port for port in ports}
        open_now = self._forwarders.setdefault(key, {})
        for listener in open_now.keys() - wanted.keys():
            self._retire(open_now.pop(listener))
        update = Update()
        for listener, port in wanted.items():
            if listener not in open_now and not await self._open(key, port, update):
                continue
            open_now[listener].update(port.endpoints, port.affinity_seconds)
        if not open_now:
            del self._forwarders[key]
        if not wanted:
            self.reset_wait(key)
        return update

    def reset_wait(self, key: ObjectKey) -> None:
        """The endpoints have changed: a pod may listen soon."""
        self._waits.pop(key, None)

    def close(self) -> None:
        """Ends the connections too."""
        for forwarder in self._closing:
            forwarder.close(listening=False)
        for forwarders in self._forwarders.values():
            for forwarder in forwarders.values():
                forwarder.close()

    async def _open(self, key: ObjectKey, port: ForwardedPort, update: Update) -> bool:
        if port.rivals:
            listening = await asyncio.to_thread(_listening_addresses, port.port)
            if listening & ANY:
                return False
            if not listening & port.rivals:
                update.delays.append(self._next_wait(key))
                return False
        try:
            self._forwarders[key][port.listener] = Forwarder(*port.listener, self._limit)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            holder = await asyncio.to_thread(_holder, *port.listener) if taken else ""
            update.failures.append(Failure(port, error, holder))
            update.delays.append(_TAKEN_SECONDS)
            return False
        return True

    def _next_wait(self, key: ObjectKey) -> float:
        wait = self._waits.get(key, _FIRST_WAIT)
        self._waits[key] = min(wait * 1.5, _LONGEST_WAIT)
        return wait

    def _retire(self, forwarder: Forwarder) -> None:
        forwarder.stop_listening()
        self._closing = [retired for retired in self._closing if retired.has_connections]
        if forwarder.has_connections:
            self._closing.append(forwarder)


def _listening_addresses(port: int) -> set[str]:
    return {listener.address for listener in read_listeners() if listener.port == port}


def _holder(address: str, port: int) -> str:
    listener = find_listener(port, address)
    holder = find_holder(listener.inode) if listener is not None else None
    if holder is None:
        return ""
    return "another Service or pod of this cluster" if holder.pid == os.getpid() else holder.title
