"""Keeps the pods' addresses and the hosts files of the namespaces: changed in place, because running pods see them."""

from collections.abc import Callable
from pathlib import Path

from trainwright.cluster.node.network.hosts import (
    Peer,
    ServiceName,
    addresses_by_name,
    choose_address,
    hostname,
    names_seen_from,
    render_hosts,
)
from trainwright.objects import Object
from trainwright.objects.metadata import namespaced_name


class NameBook:
    """Pods and Services go in as they are seen; `flush` brings the files up to date, before any process starts."""

    def __init__(self, directory: Path, *, machine_hosts: Callable[[], str]) -> None:
        self._directory = directory
        self._machine_hosts = machine_hosts
        self._given: dict[str, str] = {}
        self._peers: dict[str, Peer] = {}
        self._services: dict[str, ServiceName] = {}
        self._written: dict[str, str] = {}
        self._dirty: bool = True

    def reserve(self, uid: str, address: str) -> None:
        """A pod that was started by an earlier agent keeps what it was given then."""
        self._given[uid] = address

    def enter(self, pod: Object) -> str:
        """The address of a live pod; chosen when the pod is first seen, kept while it lives."""
        uid = pod["metadata"]["uid"]
        before = self._peers.get(uid)
        address = self._given.get(uid)
        if address is None:
            address = self._given[uid] = choose_address(namespaced_name(pod), self._given.values())
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

    def leave(self, uid: str) -> None:
        self._given.pop(uid, None)
        if self._peers.pop(uid, None):
            self._dirty = True

    def take_service(self, before: Object | None, after: Object | None) -> None:
        if before is not None:
            self._services.pop(namespaced_name(before), None)
        if after is not None:
            metadata, selector = after["metadata"], after["spec"].get("selector") or {}
            service = ServiceName(namespace=metadata["namespace"], name=metadata["name"], selector=selector)
            self._services[namespaced_name(after)] = service
        self._dirty = True

    def file(self, namespace: str) -> Path:
        path = self._path(namespace)
        if namespace not in self._written:
            self._dirty = True
            self._written[namespace] = ""
        return path

    def addresses_in(self, namespace: str) -> dict[str, str]:
        return addresses_by_name(names_seen_from(namespace, self._peers.values(), self._services.values()))

    def flush(self) -> bool:
        """True if somebody's name or address has changed since the last time."""
        if not self._dirty:
            return False
        machine = self._machine_hosts()
        for namespace, written in self._written.items():
            names = names_seen_from(namespace, self._peers.values(), self._services.values())
            text = render_hosts(names, machine)
            if text != written:
                _write_in_place(self._path(namespace), text)
                self._written[namespace] = text
        self._dirty = False
        return True

    def _path(self, namespace: str) -> Path:
        return self._directory / "hosts" / namespace


def _write_in_place(path: Path, text: str) -> None:
    """The file that pods have mounted is this inode. One write, then what is too long is cut off."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch()
    path.chmod(0o644)
    with path.open("r+b", buffering=0) as file:
        data = text.encode()
        file.write(data)
        file.truncate(len(data))
