"""The network of pods: assigns their addresses and writes the hosts files that pods have mounted.

A new name is appended to the files at once, which costs the same however many pods there are. Names that are gone are
removed by rewriting the whole files, from time to time if there are many.
"""

import asyncio
import ipaddress
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainwright.cluster.node.network.hosts import (
    Peer,
    Service,
    allocate_address,
    hostname,
    names_in_namespace,
    pod_names,
    render_aliases,
    render_hosts_file,
    render_line,
    service_names,
    service_variables,
)
from trainwright.objects import Object
from trainwright.objects.kinds.nodes import NODE_ADDRESS
from trainwright.objects.label_index import LabelIndex, SelectorIndex
from trainwright.objects.metadata import namespaced_name

_KEPT_NAMES = 64
"""So many pods that have ended keep their names, which every pod of the namespace has in its hosts file."""
_REST_SECONDS = 60.0
"""How long the kernel keeps the ports of closed connections: a program of the next pod might find its port in use."""
_REWRITE_SHARE = 0.05
"""The share of the time that may be spent on rewriting files."""


@dataclass(slots=True)
class _Names:
    """The names that pods of one namespace can use, and the files that have them."""

    by_name: dict[str, str] = field(default_factory=dict)
    by_address: dict[str, dict[str, None]] = field(default_factory=dict)
    outdated: bool = False
    """`by_name` has names that are gone, or lacks some."""
    stale: dict[str, str] = field(default_factory=dict)
    """Lines of the files that are outdated: name and address."""
    files: dict[Path, list[str]] = field(default_factory=dict)
    """With the lines of each that come first."""
    appended: list[str] = field(default_factory=list)
    """Lines that the files do not have yet."""

    def add(self, address: str, names: Iterable[str]) -> list[str]:
        """Returns the names that are new for this address."""
        known = self.by_address.setdefault(address, {})
        new = [name for name in names if name not in known]
        for name in new:
            known[name] = None
            self.by_name.setdefault(name, address)
        return new

    def forget(self, address: str) -> None:
        """The address has lost a name, or all of them."""
        self.outdated = True
        self.stale |= dict.fromkeys(self.by_address.pop(address, ()), address)

    def replace(self, names: Mapping[str, list[str]]) -> None:
        self.by_name, self.by_address, self.outdated = {}, {}, False
        for address, known in names.items():
            self.add(address, known)


class PodNetwork:
    """Pods and Services are added as they are observed; `write_hosts_files` then updates the files.

    Pods get addresses of `network`. `keeps_addresses`: one that replaces another of the same name gets its address,
    which peers know instead of its name.
    """

    def __init__(
        self,
        directory: Path,
        network: ipaddress.IPv4Network,
        *,
        machine_hosts: Callable[[], str],
        keeps_addresses: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._network = network
        self._machine_hosts = machine_hosts
        self._clock = clock
        self._addresses: dict[str, str] = {}
        self._in_use: set[str] = set()
        self._rest_seconds = 0.0 if keeps_addresses else _REST_SECONDS
        self._resting: dict[str, float] = {}
        """Addresses of ended pods, in that order, with the time at which they may be used again."""
        self._peers: dict[str, Peer] = {}
        self._services: dict[str, Service] = {}
        self._labels = LabelIndex()
        self._selectors = SelectorIndex()
        self._finished: dict[str, None] = {}
        """UIDs of pods that have ended, in that order."""
        self._namespaces: dict[str, _Names] = {}
        self._pods_in: Counter[str] = Counter()
        self._variables: dict[str, dict[str, dict[str, str]]] = {}
        """By namespace and name of a Service."""
        self._outdated = False
        """The files have names that are gone, or lack some that cannot be appended."""
        self._next_rewrite = 0.0

    def reserve(self, uid: str, address: str) -> None:
        """For a pod that an earlier agent started: it keeps its address."""
        self._addresses[uid] = address
        self._in_use.add(address)

    def owns(self, address: str) -> bool:
        return ipaddress.ip_address(address) in self._network

    def address_of(self, uid: str) -> str | None:
        """That of a pod that was added or has a reservation."""
        return self._addresses.get(uid)

    def add_pod(self, pod: Object) -> str:
        """Adds or updates a pod and returns its address, which stays the same until `remove_pod`. Pods on the machine's
        network share the node's."""
        uid = pod["metadata"]["uid"]
        before = self._peers.get(uid)
        address = self._addresses.get(uid)
        if address is None:
            on_machine = pod["spec"].get("hostNetwork")
            address = NODE_ADDRESS if on_machine else self._allocate(namespaced_name(pod))
            self.reserve(uid, address)
        peer = Peer(
            namespace=pod["metadata"]["namespace"],
            name=pod["metadata"]["name"],
            address=address,
            labels=pod["metadata"].get("labels") or {},
            hostname=hostname(pod),
            subdomain=pod["spec"].get("subdomain") or "",
        )
        if before is None:
            self._pods_in[peer.namespace] += 1
            if self._path(pod).exists():  # of a pod that an earlier agent started
                self.hosts_file(pod)
        if peer != before:
            if before is not None:
                self._forget(before.address)
            self._peers[uid] = peer
            self._labels.put(uid, peer.namespace, peer.labels)
            selecting = [self._services[key] for key in self._selectors.selecting(peer.namespace, peer.labels)]
            for namespace in self._namespaces:
                names = pod_names(peer, namespace)
                for service in sorted(selecting, key=lambda service: service.name):
                    names += service_names(service, namespace)
                self._append(namespace, address, names)
        return address

    def _allocate(self, key: str) -> str:
        now = self._clock()
        while self._resting and (oldest := next(iter(self._resting.items())))[1] <= now:
            del self._resting[oldest[0]]
        return allocate_address(self._network, key, self._in_use, self._resting)

    def finish_pod(self, uid: str) -> None:
        """The pod has ended. Its name stays for a while: a worker that starts late waits for the name of its master,
        and must not wait for ever if that has ended already."""
        if uid in self._peers:
            self._finished[uid] = None
        while len(self._finished) > _KEPT_NAMES:
            self.remove_pod(next(iter(self._finished)))

    def remove_pod(self, uid: str) -> None:
        self._finished.pop(uid, None)
        if address := self._addresses.pop(uid, None):
            self._in_use.discard(address)
            self._resting.pop(address, None)
            self._resting[address] = self._clock() + self._rest_seconds
        if peer := self._peers.pop(uid, None):
            self._labels.discard(uid)
            self._forget(peer.address)
            self._pods_in[peer.namespace] -= 1
            if not self._pods_in[peer.namespace]:
                self._namespaces.pop(peer.namespace, None)
            elif peer.namespace in self._namespaces:
                own = self._own_path(uid)
                if self._namespaces[peer.namespace].files.pop(own, None):
                    own.unlink(missing_ok=True)

    def update_service(self, before: Object | None, after: Object | None) -> None:
        new = _service(after) if after is not None else None
        key = namespaced_name(after or before or {})
        self._update_variables(before, after)
        old = self._services.pop(key, None)
        if new is not None:
            self._services[key] = new
        if old == new:
            return
        if old is not None:
            self._selectors.discard(old.key)
            for address in self._addresses_of(old):
                self._forget(address)
        if new is None:
            return
        if new.external_name:
            self._outdated = True
            for names in self._namespaces.values():
                names.outdated = True
        elif not new.address:
            self._selectors.put(new.key, new.namespace, new.selector)
        for address in self._addresses_of(new):
            for namespace in self._namespaces:
                self._append(namespace, address, service_names(new, namespace))

    def hosts_file(self, pod: Object) -> Path:
        """The file for a pod; one of its own if it has hostAliases."""
        namespace, path = pod["metadata"]["namespace"], self._path(pod)
        files = self._names(namespace).files
        if path not in files:
            files[path] = _aliases(pod)
            self._write(path, namespace, names_in_namespace(namespace, self._peers.values(), self._services.values()))
        return path

    def service_variables(self, pod: Object) -> dict[str, str]:
        """The variables of the API server's Service and, unless `enableServiceLinks` is false, of its namespace."""
        found: dict[str, str] = {}
        if pod["spec"].get("enableServiceLinks", True):
            for variables in self._variables.get(pod["metadata"]["namespace"], {}).values():
                found |= variables
        return found | self._variables.get("default", {}).get("kubernetes", {})

    def addresses_for(self, pod: Object) -> Mapping[str, str]:
        """Name -> address, for a pod without a hosts file."""
        names = self.addresses_in(pod["metadata"]["namespace"])
        aliases = {
            name: str(alias["ip"])
            for alias in pod["spec"].get("hostAliases") or ()
            for name in alias.get("hostnames") or ()
        }
        return {**names, **aliases} if aliases else names

    def addresses_in(self, namespace: str) -> Mapping[str, str]:
        """Name -> address."""
        names = self._names(namespace)
        if names.outdated:
            self._rebuild(namespace)
        return names.by_name

    def write_hosts_files(self) -> bool:
        """True if a name or an address has changed since the last call."""
        changed = self._outdated
        if self._outdated and self._clock() >= self._next_rewrite:
            self._rewrite()
        for names in self._namespaces.values():
            if names.appended:
                changed = True
                text = "".join(f"{line}\n" for line in names.appended)
                names.appended.clear()
                for path in names.files:
                    with path.open("a") as file:
                        file.write(text)
        return changed

    @property
    def rewrite_delay(self) -> float | None:
        """Seconds until `write_hosts_files` has to be called again; None if the files are up to date."""
        return max(self._next_rewrite - self._clock(), 0.0) if self._outdated else None

    def _names(self, namespace: str) -> _Names:
        if namespace not in self._namespaces:
            self._namespaces[namespace] = _Names()
            self._rebuild(namespace)
        return self._namespaces[namespace]

    def _update_variables(self, before: Object | None, after: Object | None) -> None:
        if before is not None:
            metadata = before["metadata"]
            self._variables.get(metadata["namespace"], {}).pop(metadata["name"], None)
        if after is not None and (variables := service_variables(after)):
            self._variables.setdefault(after["metadata"]["namespace"], {})[after["metadata"]["name"]] = variables

    def _addresses_of(self, service: Service) -> list[str]:
        if service.address:
            return [service.address]
        return [self._peers[uid].address for uid in self._labels.selected(service.namespace, service.selector)]

    def _append(self, namespace: str, address: str, names: list[str]) -> None:
        table = self._namespaces[namespace]
        new = table.add(address, names)
        if any(table.stale.get(name, address) != address for name in new):
            # The first line that has a name counts, and that is the outdated one.
            self._outdated, self._next_rewrite = True, 0.0
        if missing := [name for name in new if table.stale.pop(name, "") != address]:
            table.appended.append(render_line(address, missing))

    def _forget(self, address: str) -> None:
        self._outdated = True
        for names in self._namespaces.values():
            names.forget(address)

    def _rebuild(self, namespace: str) -> dict[str, list[str]]:
        names = names_in_namespace(namespace, self._peers.values(), self._services.values())
        self._namespaces[namespace].replace(names)
        return names

    def _rewrite(self) -> None:
        began = self._clock()
        for namespace, table in self._namespaces.items():
            names = self._rebuild(namespace)
            table.stale.clear()
            table.appended.clear()
            for path in table.files:
                self._write(path, namespace, names)
        self._outdated = False
        ended = self._clock()
        self._next_rewrite = ended + (ended - began) / _REWRITE_SHARE

    def _write(self, path: Path, namespace: str, names: Mapping[str, list[str]]) -> None:
        text = render_hosts_file(names, self._machine_hosts(), self._namespaces[namespace].files[path])
        _write_in_place(path, text)

    def _path(self, pod: Object) -> Path:
        metadata = pod["metadata"]
        return self._own_path(metadata["uid"]) if _aliases(pod) else self._directory / "hosts" / metadata["namespace"]

    def _own_path(self, uid: str) -> Path:
        return self._directory / "hosts" / f"pod:{uid}"


class HostsFileWriter:
    """Writes the hosts files after names have changed. Changes that come together are written once; a rewrite that
    must wait is done later."""

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


def _aliases(pod: Object) -> list[str]:
    return render_aliases(pod["spec"].get("hostAliases") or ())


def _service(obj: Object) -> Service:
    metadata, spec = obj["metadata"], obj["spec"]
    address = str(spec.get("clusterIP") or "")
    return Service(
        namespace=metadata["namespace"],
        name=metadata["name"],
        selector=spec.get("selector") or {},
        address="" if address == "None" else address,
        external_name=str(spec.get("externalName") or "") if spec.get("type") == "ExternalName" else "",
    )


def _write_in_place(path: Path, text: str) -> None:
    """Pods have mounted this inode, so the file is not replaced: one write, then the rest is truncated."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch()
    path.chmod(0o644)
    with path.open("r+b", buffering=0) as file:
        data = text.encode()
        file.write(data)
        file.truncate(len(data))
