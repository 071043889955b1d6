"""Addresses and host names of pods: every pod has an address of the cluster's, and /etc/hosts resolves its names.

Programs in pods find Services by environment variables as well, which the kubelet defines in the same way.

Pure; `pod_network` keeps the state and writes the files.
"""

import hashlib
import ipaddress
import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from trainwright.objects import Object
from trainwright.objects.label_index import LabelIndex

_LOCALHOST_LINES = ("127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?")
_ADDRESS_VARIABLE = re.compile(r"(^|_)(ADDRS?|ADDRESS(ES)?|HOSTS?|ENDPOINTS?)$")
_MASTER_VARIABLE = re.compile(r"(^|_)MASTER$")
"""PADDLE_MASTER is an address with a port; without a port the value could be any word."""
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")
_SHORT_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
API_SERVER_HOST = "KUBERNETES_SERVICE_HOST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A running pod as other pods address it."""

    namespace: str
    name: str
    address: str
    labels: Mapping[str, str] = field(default_factory=dict)
    hostname: str = ""
    subdomain: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """`address` is that of the Service. Without one (headless) its names are those of the pods that it selects."""

    namespace: str
    name: str
    selector: Mapping[str, str] = field(default_factory=dict)
    address: str = ""
    external_name: str = ""
    """The name that an ExternalName Service is another name for."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


def hostname(pod: Object) -> str:
    """`spec.hostname` or the pod's name, cut to the length that a hostname may have."""
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63].rstrip("-.")


def allocate_address(
    network: ipaddress.IPv4Network, key: str, taken: Container[str], resting: Collection[str] = ()
) -> str:
    """An address for the pod `NAMESPACE/NAME`: a replaced pod gets the address of its predecessor if it is free. An
    address that rests is used only if no other is free."""
    start = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8])
    for step in range(network.num_addresses):
        candidate = network[(start + step) % network.num_addresses]
        address = str(candidate)
        if candidate.packed[3] not in {0, 255} and address not in taken and address not in resting:
            return address
    if resting:
        return allocate_address(network, key, taken)
    raise RuntimeError(f"all addresses of {network} are taken")


def pod_names(peer: Peer, namespace: str) -> list[str]:
    """The names of a pod by itself, for pods of `namespace`."""
    names = [peer.name] if peer.namespace == namespace else []
    if peer.subdomain:
        names += qualified(f"{peer.hostname or peer.name}.{peer.subdomain}", peer.namespace, namespace)
    return names


def service_names(service: Service, namespace: str) -> list[str]:
    return qualified(service.name, service.namespace, namespace)


def names_in_namespace(namespace: str, peers: Iterable[Peer], services: Iterable[Service]) -> dict[str, list[str]]:
    """Address -> names that a pod of this namespace can use; short names exist only for its own namespace."""
    found: dict[str, list[str]] = {}
    ordered = sorted(peers, key=lambda peer: (peer.namespace, peer.name))
    all_services = sorted(services, key=lambda service: (service.namespace, service.name))
    for peer, selecting in zip(ordered, _selecting(ordered, all_services), strict=True):
        names = found.setdefault(peer.address, [])
        names += pod_names(peer, namespace)
        for service in selecting:
            names += service_names(service, namespace)
    for service in all_services:
        if service.address:
            found.setdefault(service.address, []).extend(service_names(service, namespace))
    external = [service for service in all_services if service.external_name]
    if external:
        by_name = addresses_by_name(found)
        for service in external:
            if address := _external_address(service, by_name):
                found.setdefault(address, []).extend(service_names(service, namespace))
    return {address: list(dict.fromkeys(names)) for address, names in found.items() if names}


def _external_address(service: Service, by_name: Mapping[str, str]) -> str | None:
    """An address, `localhost` and the names of this cluster can be resolved without a name server."""
    name = service.external_name.removesuffix(".")
    if _ADDRESS.fullmatch(name):
        return name
    if name == "localhost":
        return "127.0.0.1"
    if name.endswith(".svc"):
        name += ".cluster.local"
    return by_name.get(name) if name.endswith(".svc.cluster.local") else None


def _selecting(peers: Sequence[Peer], services: Iterable[Service]) -> list[list[Service]]:
    """The headless services that select each peer."""
    index = LabelIndex()
    for number, peer in enumerate(peers):
        index.put(str(number), peer.namespace, peer.labels)
    selecting: list[list[Service]] = [[] for _ in peers]
    for service in services:
        if not service.address:
            for key in index.selected(service.namespace, service.selector):
                selecting[int(key)].append(service)
    return selecting


def render_aliases(aliases: Iterable[Object]) -> list[str]:
    """The lines of a pod's `hostAliases`."""
    return [f"{alias['ip']} {' '.join(alias['hostnames'])}" for alias in aliases if alias.get("hostnames")]


def render_hosts_file(names: Mapping[str, list[str]], machine: str = "", aliases: Iterable[str] = ()) -> str:
    """`machine` is the host's own /etc/hosts, whose other names are kept. `aliases` are lines that come first."""
    lines = [*_LOCALHOST_LINES, *aliases, *(render_line(address, known) for address, known in names.items())]
    kept = [line.strip() for line in machine.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return "\n".join([*lines, *(line for line in kept if "localhost" not in line.split())]) + "\n"


def render_line(address: str, names: Iterable[str]) -> str:
    return f"{address} {' '.join(names)}"


def addresses_by_name(names: Mapping[str, list[str]]) -> dict[str, str]:
    by_name: dict[str, str] = {}
    for address, known in names.items():
        for name in known:
            by_name.setdefault(name, address)
    return by_name


def replace_names(text: str, by_name: Mapping[str, str]) -> str:
    """Replaces names by addresses (`NAME`, `NAME:PORT`, in JSON, …), for pods without an /etc/hosts of their own."""
    return _NAME.sub(lambda match: by_name.get(match[0], match[0]), text)


def unresolved_names(variables: Mapping[str, str], namespace: str, by_name: Mapping[str, str]) -> set[str]:
    """Names of peers in the environment that no pod has yet.

    A name in the cluster's domain is recognised in every variable, a short name only in variables for addresses: in
    others it could be any word.
    """
    found = set()
    for variable, value in variables.items():
        for match in _NAME.finditer(value):
            name = match[0]
            if name.endswith((f".{namespace}.svc", ".svc.cluster.local")):
                found.add(name)
        if _ADDRESS_VARIABLE.search(variable) or (_MASTER_VARIABLE.search(variable) and ":" in value):
            hosts = (_host(address) for address in value.split(","))
            found.update(host for host in hosts if _SHORT_NAME.fullmatch(host) and host != "localhost")
    return found - by_name.keys()


def _host(address: str) -> str:
    """The host of `HOST`, `HOST:PORT` or a URL."""
    after_scheme = address.partition("://")[2] or address
    return after_scheme.partition(":")[0].partition("/")[0]


def qualified(name: str, namespace: str, from_namespace: str) -> list[str]:
    long = [f"{name}.{namespace}", f"{name}.{namespace}.svc", f"{name}.{namespace}.svc.cluster.local"]
    return [name, *long] if namespace == from_namespace else long


def api_server_variables(url: str) -> dict[str, str]:
    """The Service `kubernetes`: clients in pods find the API server by KUBERNETES_SERVICE_HOST and _PORT."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 443
    address = f"tcp://{f'[{host}]' if ':' in host else host}:{port}"
    return {
        API_SERVER_HOST: host,
        "KUBERNETES_SERVICE_PORT": str(port),
        "KUBERNETES_SERVICE_PORT_HTTPS": str(port),
        "KUBERNETES_PORT": address,
        f"KUBERNETES_PORT_{port}_TCP": address,
        f"KUBERNETES_PORT_{port}_TCP_PROTO": "tcp",
        f"KUBERNETES_PORT_{port}_TCP_PORT": str(port),
        f"KUBERNETES_PORT_{port}_TCP_ADDR": host,
    }


def service_variables(service: Object) -> dict[str, str]:
    """Empty for a Service without an address of its own."""
    spec = service["spec"]
    address, ports = spec.get("clusterIP"), spec.get("ports") or []
    if not address or address == "None" or not ports:
        return {}
    prefix = _variable(service["metadata"]["name"])
    variables = {f"{prefix}_SERVICE_HOST": address, f"{prefix}_SERVICE_PORT": str(ports[0]["port"])}
    for port in ports:
        if name := port.get("name"):
            variables[f"{prefix}_SERVICE_PORT_{_variable(name)}"] = str(port["port"])
    for index, port in enumerate(ports):
        protocol, number = str(port.get("protocol") or "TCP"), str(port["port"])
        url = f"{protocol.lower()}://{address}:{number}"
        if index == 0:
            variables[f"{prefix}_PORT"] = url
        link = f"{prefix}_PORT_{number}_{protocol}"
        variables |= {link: url, f"{link}_PROTO": protocol.lower(), f"{link}_PORT": number, f"{link}_ADDR": address}
    return variables


def _variable(name: str) -> str:
    return name.replace("-", "_").upper()
