"""The endpoints of a Service: which pods it selects, on which ports, and whether they are ready. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trainwright.objects import Object
from trainwright.objects.decimals import parse_decimal
from trainwright.objects.kinds.pods import PodPortsSpec, PodReadinessStatus
from trainwright.objects.kinds.services import SERVICE_NAME
from trainwright.objects.metadata import ObjectMeta, View, controller_reference

MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
SKIP_MIRROR = "endpointslice.kubernetes.io/skip-mirror"
SLICE_CONTROLLER = "endpointslice-controller.k8s.io"
MIRROR_CONTROLLER = "endpointslicemirroring-controller.k8s.io"
ENDPOINTS_MANAGED_BY = "endpoints.kubernetes.io/managed-by"

_HEADLESS_LABEL = "service.kubernetes.io/headless"
_RESERVED_LABELS = {SERVICE_NAME, MANAGED_BY, _HEADLESS_LABEL}
_SLICE_SIZE = 100
_MAX_ENDPOINTS = 1000
"""The most addresses of one Endpoints object; with more it has the annotation below."""
_OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"


class EndpointPodSpec(PodPortsSpec, frozen=True):
    hostname: str = ""
    subdomain: str = ""


class EndpointPod(View, frozen=True):
    """What endpoints depend on."""

    metadata: ObjectMeta
    spec: EndpointPodSpec = EndpointPodSpec()
    status: PodReadinessStatus = PodReadinessStatus()

    @property
    def relevant(self) -> object:
        """Endpoints change only if this changes."""
        status, metadata = self.status, self.metadata
        return metadata.uid, metadata.labels, metadata.terminating, status.pod_ip, status.finished, status.ready


@dataclass(frozen=True, slots=True)
class Port:
    name: str
    number: int
    protocol: str
    app_protocol: str | None = None

    def to_object(self) -> Object:
        port: Object = {"name": self.name, "port": self.number, "protocol": self.protocol}
        return port | ({"appProtocol": self.app_protocol} if self.app_protocol else {})


def find_port(pod: EndpointPod, port: Object) -> int | None:
    """The number of the targetPort, or that of the container port with its name."""
    target = port.get("targetPort", port.get("port"))
    if isinstance(target, int):
        return target
    for declared in pod.spec.ports:
        if (declared.name, declared.protocol) == (target, port.get("protocol", "TCP")):
            return declared.container_port
    return None


def pod_ports(pod: EndpointPod, service: Object) -> tuple[Port, ...]:
    return tuple(
        Port(port.get("name", ""), number, port.get("protocol", "TCP"), port.get("appProtocol"))
        for port in service["spec"].get("ports") or ()
        if (number := find_port(pod, port)) is not None
    )


def _is_published(pod: EndpointPod, service: Object) -> bool:
    """Whether the pod gets traffic."""
    return bool(service["spec"].get("publishNotReadyAddresses")) or (pod.status.ready and not pod.metadata.terminating)


def _hostname(pod: EndpointPod, service: Object) -> str:
    return pod.spec.hostname if pod.spec.subdomain == service["metadata"]["name"] else ""


def _target(pod: EndpointPod) -> Object:
    metadata = pod.metadata
    return {"kind": "Pod", "namespace": metadata.namespace, "name": metadata.name, "uid": metadata.uid}


def _is_headless(service: Object) -> bool:
    return service["spec"].get("clusterIP") in {None, "", "None"}


# Endpoints


def make_endpoints(service: Object, pods: Iterable[EndpointPod]) -> Object:
    """The Endpoints object of a Service with a selector."""
    published = bool(service["spec"].get("publishNotReadyAddresses"))
    listed = [pod for pod in pods if pod.status.is_reachable and (published or not pod.metadata.terminating)]
    listed.sort(key=lambda pod: (not _is_published(pod, service), _address_key(pod.status.pod_ip), pod.metadata.uid))
    over_capacity = len(listed) > _MAX_ENDPOINTS
    metadata = service["metadata"]
    labels = {**(metadata.get("labels") or {}), ENDPOINTS_MANAGED_BY: "endpoint-controller"}
    endpoints: Object = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": labels | ({_HEADLESS_LABEL: ""} if _is_headless(service) else {}),
        },
    }
    if over_capacity:
        endpoints["metadata"]["annotations"] = {_OVER_CAPACITY: "truncated"}
    if subsets := _subsets(service, listed[:_MAX_ENDPOINTS]):
        endpoints["subsets"] = subsets
    return endpoints


def _subsets(service: Object, pods: list[EndpointPod]) -> list[Object]:
    """Ports that the same pods have form one subset."""
    if not service["spec"].get("ports"):
        return [_subset(service, pods, ())] if pods and _is_headless(service) else []
    by_port: dict[Port, list[EndpointPod]] = {}
    for pod in pods:
        for port in pod_ports(pod, service):
            by_port.setdefault(port, []).append(pod)
    by_pods: dict[tuple[str, ...], tuple[list[EndpointPod], list[Port]]] = {}
    for port, having in by_port.items():
        by_pods.setdefault(tuple(pod.metadata.uid for pod in having), (having, []))[1].append(port)
    return [_subset(service, having, ports) for having, ports in by_pods.values()]


def _subset(service: Object, pods: list[EndpointPod], ports: Sequence[Port]) -> Object:
    ready = [_endpoint_address(pod, service) for pod in pods if _is_published(pod, service)]
    not_ready = [_endpoint_address(pod, service) for pod in pods if not _is_published(pod, service)]
    subset: Object = {"addresses": ready} if ready else {}
    if not_ready:
        subset["notReadyAddresses"] = not_ready
    if ports:
        shown = [port.to_object() for port in ports]
        subset["ports"] = [{key: value for key, value in port.items() if value != ""} for port in shown]
    return subset


def _endpoint_address(pod: EndpointPod, service: Object) -> Object:
    address: Object = {"ip": pod.status.pod_ip, "targetRef": _target(pod)}
    if hostname := _hostname(pod, service):
        address["hostname"] = hostname
    if pod.spec.node_name:
        address["nodeName"] = pod.spec.node_name
    return address


def _address_key(address: str) -> tuple[int, ...]:
    return tuple(number for part in address.split(".") if (number := parse_decimal(part)) is not None)


# EndpointSlices


@dataclass(slots=True)
class SlicePlan:
    """What to do with the EndpointSlices of a Service."""

    create: list[Object] = field(default_factory=list)
    update: list[Object] = field(default_factory=list)
    delete: list[Object] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Group:
    """Endpoints with the same ports."""

    ports: list[Object]
    endpoints: dict[str, Object]
    """By address and pod."""


def plan_slices(service: Object, pods: Iterable[EndpointPod], existing: Iterable[Object]) -> SlicePlan:
    """The changes that make the EndpointSlices of a Service with a selector show its pods."""
    groups: dict[tuple[Port, ...], _Group] = {}
    ordered = sorted(pods, key=lambda pod: (_address_key(pod.status.pod_ip), pod.metadata.uid))
    for pod in ordered:
        if pod.status.is_reachable:
            ports = pod_ports(pod, service)
            group = groups.setdefault(ports, _Group([port.to_object() for port in ports], {}))
            endpoint = _endpoint(pod, service)
            group.endpoints[_identity(endpoint)] = endpoint
    return _plan(service, "Service", SLICE_CONTROLLER, list(groups.values()), existing)


def plan_mirrored_slices(endpoints: Object | None, existing: Iterable[Object]) -> SlicePlan:
    """The same for a Service without a selector, whose Endpoints users write."""
    groups: list[_Group] = []
    labels = ((endpoints or {}).get("metadata") or {}).get("labels") or {}
    if endpoints is None or labels.get(SKIP_MIRROR) == "true":
        return SlicePlan(delete=list(existing))
    for subset in endpoints.get("subsets") or ():
        ports = [{"name": "", "protocol": "TCP"} | port for port in subset.get("ports") or ()]
        found = {
            _identity(endpoint): endpoint
            for ready, name in ((True, "addresses"), (False, "notReadyAddresses"))
            for address in subset.get(name) or ()
            for endpoint in [_mirrored(address, ready=ready)]
        }
        groups.append(_Group(ports, found))
    return _plan(endpoints, "Endpoints", MIRROR_CONTROLLER, groups, existing)


def _plan(owner: Object, kind: str, controller: str, groups: list[_Group], existing: Iterable[Object]) -> SlicePlan:
    """Keeps endpoints in the slices that have them, fills these up, and adds slices for the rest."""
    plan = SlicePlan()
    name = owner["metadata"]["name"]
    own_labels = (owner["metadata"].get("labels") or {}).items()
    labels = {key: value for key, value in own_labels if key not in _RESERVED_LABELS and key != ENDPOINTS_MANAGED_BY}
    if kind == "Service" and _is_headless(owner):
        labels[_HEADLESS_LABEL] = ""
    labels |= {SERVICE_NAME: name, MANAGED_BY: controller}
    by_ports: dict[str, list[Object]] = {}
    for endpoint_slice in existing:
        by_ports.setdefault(_ports_key(endpoint_slice.get("ports") or []), []).append(endpoint_slice)
    # A Service without endpoints has an empty slice.
    for group in groups or [_Group([], {})]:
        slices = by_ports.pop(_ports_key(group.ports), [])
        missing = dict(group.endpoints)
        kept = [_kept(endpoint_slice, missing) for endpoint_slice in slices]
        for endpoints in kept:
            while missing and len(endpoints) < _SLICE_SIZE:
                endpoints.append(missing.pop(next(iter(missing))))
        remaining = list(missing.values())
        for start in range(0, max(len(remaining), 0 if slices else 1), _SLICE_SIZE):
            created = _new_slice(owner, kind, labels, group.ports, remaining[start : start + _SLICE_SIZE])
            plan.create.append(created)
        for index, (endpoint_slice, endpoints) in enumerate(zip(slices, kept, strict=True)):
            if not endpoints and (index or remaining or any(kept)):
                plan.delete.append(endpoint_slice)
                continue
            metadata = endpoint_slice["metadata"]
            if (endpoint_slice.get("endpoints") or []) != endpoints or metadata.get("labels") != labels:
                metadata = metadata | {"labels": labels}
                plan.update.append(endpoint_slice | {"endpoints": endpoints, "metadata": metadata})
    plan.delete += [endpoint_slice for many in by_ports.values() for endpoint_slice in many]
    while plan.create and plan.delete:  # one write instead of two
        created, reused = plan.create.pop(0), plan.delete.pop(0)
        content = {"ports": created["ports"], "endpoints": created["endpoints"]}
        plan.update.append(reused | content | {"metadata": reused["metadata"] | {"labels": labels}})
    return plan


def _kept(existing: Object, missing: dict[str, Object]) -> list[Object]:
    """The wanted endpoints that a slice has already, in its order; they are no longer `missing`."""
    identities = [_identity(endpoint) for endpoint in existing.get("endpoints") or ()]
    return [missing.pop(identity) for identity in identities if identity in missing]


def _new_slice(owner: Object, kind: str, labels: Object, ports: list[Object], endpoints: list[Object]) -> Object:
    metadata = owner["metadata"]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [controller_reference(owner | {"apiVersion": "v1", "kind": kind})],
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": ports,
    }


def _endpoint(pod: EndpointPod, service: Object) -> Object:
    endpoint: Object = {
        "addresses": [pod.status.pod_ip],
        "conditions": {
            "ready": _is_published(pod, service),
            "serving": pod.status.ready,
            "terminating": pod.metadata.terminating,
        },
        "targetRef": _target(pod),
    }
    if hostname := _hostname(pod, service):
        endpoint["hostname"] = hostname
    if pod.spec.node_name:
        endpoint["nodeName"] = pod.spec.node_name
    return endpoint


def _mirrored(address: Object, *, ready: bool) -> Object:
    endpoint: Object = {"addresses": [address["ip"]], "conditions": {"ready": ready}}
    return endpoint | {key: address[key] for key in ("hostname", "nodeName", "targetRef") if address.get(key)}


def _identity(endpoint: Object) -> str:
    return f"{endpoint['addresses'][0]} {(endpoint.get('targetRef') or {}).get('uid', '')}"


def _ports_key(ports: list[Object]) -> str:
    return str(sorted(str(sorted(port.items())) for port in ports))
