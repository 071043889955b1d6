"""The supervisors of the node's pods: started, found again after a restart of the agent, and watched until they end."""

import asyncio
import contextlib
from collections.abc import Callable

from trainwright.cluster.node.pods.fork_server_starter import ForkServer
from trainwright.cluster.node.pods.pod_directory import PodDirectory, SupervisorProcess


class Supervisors:
    """By the uid of their pods. `on_exit` is called in the event loop when one has ended."""

    def __init__(self, fork_server: ForkServer, *, on_exit: Callable[[str, SupervisorProcess], None]) -> None:
        self._fork_server = fork_server
        self._on_exit = on_exit
        self._running: dict[str, SupervisorProcess] = {}

    def __contains__(self, uid: str) -> bool:
        return uid in self._running

    def prepare(self) -> None:
        """Makes the first start quick."""
        with contextlib.suppress(OSError):  # pods that cannot be started say why
            self._fork_server.start()

    async def start(self, uid: str, directory: PodDirectory) -> None:
        """Raises OSError if it cannot be started."""
        self._watch(uid, await self._fork_server.start_supervisor(directory))

    def find(self, uid: str, directory: PodDirectory) -> SupervisorProcess | None:
        """The pod's supervisor, also if an earlier agent started it."""
        if uid not in self._running and (found := directory.find_supervisor()) is not None:
            self._watch(uid, found)
        return self._running.get(uid)

    def close(self) -> None:
        """Stops watching. The supervisors keep running."""
        self._fork_server.close()
        for uid in list(self._running):
            self._forget(uid).close()

    def _watch(self, uid: str, supervisor: SupervisorProcess) -> None:
        self._running[uid] = supervisor
        asyncio.get_running_loop().add_reader(supervisor.descriptor, self._on_readable, uid)

    def _on_readable(self, uid: str) -> None:
        supervisor = self._forget(uid)
        supervisor.close()
        self._on_exit(uid, supervisor)

    def _forget(self, uid: str) -> SupervisorProcess:
        supervisor = self._running.pop(uid)
        asyncio.get_running_loop().remove_reader(supervisor.descriptor)
        return supervisor
