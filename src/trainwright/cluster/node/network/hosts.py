"""Names and addresses of pods: each has its own in 127.64.0.0/10, and the /etc/hosts of a namespace names them all."""

import hashlib
import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from trainwright.objects import Object

_NETWORK = ipaddress.ip_network("127.64.0.0/10")
_OWN_LINES = ("127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?")
_ADDRESS_VARIABLE = re.compile(r"(^|_)(ADDR|ADDRESS|HOST|ENDPOINT)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A live pod as others find it."""

    namespace: str
    name: str
    address: str
    labels: Mapping[str, str] = field(default_factory=dict)
    hostname: str = ""
    subdomain: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceName:
    namespace: str
    name: str
    selector: Mapping[str, str]

    def selects(self, peer: Peer) -> bool:
        return (
            bool(self.selector)
            and peer.namespace == self.namespace
            and all(peer.labels.get(key) == value for key, value in self.selector.items())
        )


def hostname(pod: Object) -> str:
    """`spec.hostname` or the pod's name, cut to the length that a hostname may have."""
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63].rstrip("-.")


def choose_address(key: str, taken: Iterable[str]) -> str:
    """An address for the pod `NAMESPACE/NAME`: a replaced pod gets that of its predecessor while it is free."""
    occupied = set(taken)
    start = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8])
    for step in range(_NETWORK.num_addresses):
        candidate = _NETWORK[(start + step) % _NETWORK.num_addresses]
        if candidate.packed[3] not in {0, 255} and str(candidate) not in occupied:
            return str(candidate)
    raise RuntimeError(f"all addresses of {_NETWORK} are taken")


def names_seen_from(namespace: str, peers: Iterable[Peer], services: Iterable[ServiceName]) -> dict[str, list[str]]:
    """Address -> names, as a pod of this namespace uses them: short names are those of its own namespace alone."""
    found: dict[str, list[str]] = {}
    ordered = sorted(peers, key=lambda peer: (peer.namespace, peer.name))
    for peer, selecting in zip(ordered, _selecting(ordered, services), strict=True):
        names = found.setdefault(peer.address, [])
        if peer.namespace == namespace:
            names.append(peer.name)
        if peer.subdomain:
            names += _qualified(f"{peer.hostname or peer.name}.{peer.subdomain}", peer.namespace, namespace)
        for service in selecting:
            names += _qualified(service.name, service.namespace, namespace)
    return {address: list(dict.fromkeys(names)) for address, names in found.items() if names}


def _selecting(peers: Sequence[Peer], services: Iterable[ServiceName]) -> list[list[ServiceName]]:
    """The services of each peer, by name. Not each is compared with each: hundreds of both change many times a second.

    Only peers that have the rarest of a service's labels are looked at.
    """
    having: dict[tuple[str, str, str], list[int]] = {}
    for index, peer in enumerate(peers):
        for key, value in peer.labels.items():
            having.setdefault((peer.namespace, key, value), []).append(index)
    selecting: list[list[ServiceName]] = [[] for _ in peers]
    for service in sorted(services, key=lambda service: (service.namespace, service.name)):
        candidates = [having.get((service.namespace, *label), []) for label in service.selector.items()]
        for index in min(candidates, key=len, default=[]):
            if service.selects(peers[index]):
                selecting[index].append(service)
    return selecting


def render_hosts(names: Mapping[str, list[str]], machine: str = "") -> str:
    """The file. `machine` is the text of the host's own, whose other names stay known."""
    lines = [*_OWN_LINES, *(f"{address} {' '.join(known)}" for address, known in names.items())]
    own = [line.strip() for line in machine.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return "\n".join([*lines, *(line for line in own if "localhost" not in line.split())]) + "\n"


def addresses_by_name(names: Mapping[str, list[str]]) -> dict[str, str]:
    by_name: dict[str, str] = {}
    for address, known in names.items():
        for name in known:
            by_name.setdefault(name, address)
    return by_name


def replace_names(text: str, by_name: Mapping[str, str]) -> str:
    """At `plain` no /etc/hosts of ours is seen: names in values become addresses (`NAME`, `NAME:PORT`, in JSON, …)."""
    return _NAME.sub(lambda match: by_name.get(match[0], match[0]), text)


def unknown_names(variables: Mapping[str, str], namespace: str, by_name: Mapping[str, str]) -> set[str]:
    """Names of peers in the environment that nobody has yet; to be waited for, because they cannot be replaced later.

    A name in the cluster's domain is recognised anywhere, a short one where a variable's name says that it holds an
    address: elsewhere it could be any word.
    """
    found = set()
    for variable, value in variables.items():
        for match in _NAME.finditer(value):
            name = match[0]
            if name.endswith((f".{namespace}.svc", ".svc.cluster.local")):
                found.add(name)
        if _ADDRESS_VARIABLE.search(variable):
            host = value.partition("://")[2] or value
            host = host.partition(":")[0].partition("/")[0]
            if re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", host) and host != "localhost":
                found.add(host)
    return found - by_name.keys()


def _qualified(name: str, namespace: str, seen_from: str) -> list[str]:
    long = [f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local"]
    return [name, *long] if namespace == seen_from else long
