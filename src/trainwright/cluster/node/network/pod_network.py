"""The network of pods: assigns their addresses and writes the hosts file of each namespace, which pods have mounted."""

from collections.abc import Callable
from pathlib import Path

from trainwright.cluster.node.network.hosts import (
    Peer,
    Service,
    addresses_by_name,
    allocate_address,
    hostname,
    names_in_namespace,
    render_hosts_file,
)
from trainwright.objects import Object
from trainwright.objects.metadata import namespaced_name

_KEPT_NAMES = 64
"""Of pods that have ended: every pod of a namespace has their names in its hosts file."""


class PodNetwork:
    """Pods and Services are added as they are observed; `write_hosts_files` then updates the files."""

    def __init__(self, directory: Path, *, machine_hosts: Callable[[], str]) -> None:
        self._directory = directory
        self._machine_hosts = machine_hosts
        self._addresses: dict[str, str] = {}
        self._peers: dict[str, Peer] = {}
        self._services: dict[str, Service] = {}
        self._finished: dict[str, None] = {}
        """UIDs of pods that have ended, in that order."""
        self._written: dict[str, str] = {}
        self._dirty: bool = True

    def reserve(self, uid: str, address: str) -> None:
        """For a pod that an earlier agent started: it keeps its address."""
        self._addresses[uid] = address

    def add_pod(self, pod: Object) -> str:
        """Adds or updates a pod and returns its address, which stays the same until `remove_pod`."""
        uid = pod["metadata"]["uid"]
        before = self._peers.get(uid)
        address = self._addresses.get(uid)
        if address is None:
            address = self._addresses[uid] = allocate_address(namespaced_name(pod), self._addresses.values())
        peer = Peer(
            namespace=pod["metadata"]["namespace"],
            name=pod["metadata"]["name"],
            address=address,
            labels=pod["metadata"].get("labels") or {},
            hostname=hostname(pod),
            subdomain=pod["spec"].get("subdomain") or "",
        )
        if peer != before:
            self._peers[uid] = peer
            self._dirty = True
        return address

    def finish_pod(self, uid: str) -> None:
        """The pod has ended. Its name stays for a while: a worker that starts late waits for the name of its master,
        and must not wait for ever if that has ended already."""
        if uid in self._peers:
            self._finished[uid] = None
        while len(self._finished) > _KEPT_NAMES:
            self.remove_pod(next(iter(self._finished)))

    def remove_pod(self, uid: str) -> None:
        self._finished.pop(uid, None)
        self._addresses.pop(uid, None)
        if self._peers.pop(uid, None):
            self._dirty = True

    def update_service(self, before: Object | None, after: Object | None) -> None:
        if before is not None:
            self._services.pop(namespaced_name(before), None)
        if after is not None:
            metadata, selector = after["metadata"], after["spec"].get("selector") or {}
            service = Service(namespace=metadata["namespace"], name=metadata["name"], selector=selector)
            self._services[namespaced_name(after)] = service
        self._dirty = True

    def hosts_file(self, namespace: str) -> Path:
        path = self._path(namespace)
        if namespace not in self._written:
            self._dirty = True
            self._written[namespace] = ""
        return path

    def addresses_in(self, namespace: str) -> dict[str, str]:
        return addresses_by_name(names_in_namespace(namespace, self._peers.values(), self._services.values()))

    def write_hosts_files(self) -> bool:
        """True if a name or an address has changed since the last call."""
        if not self._dirty:
            return False
        machine = self._machine_hosts()
        for namespace, written in self._written.items():
            names = names_in_namespace(namespace, self._peers.values(), self._services.values())
            text = render_hosts_file(names, machine)
            if text != written:
                _write_in_place(self._path(namespace), text)
                self._written[namespace] = text
        self._dirty = False
        return True

    def _path(self, namespace: str) -> Path:
        return self._directory / "hosts" / namespace


def _write_in_place(path: Path, text: str) -> None:
    """Pods have mounted this inode, so the file is not replaced: one write, then the rest is truncated."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch()
    path.chmod(0o644)
    with path.open("r+b", buffering=0) as file:
        data = text.encode()
        file.write(data)
        file.truncate(len(data))
