"""The printer columns of built-in kinds other than pods, and of custom resources."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from trainwright.cluster.apiserver.resources.columns.jsonpath import compile_path
from trainwright.cluster.apiserver.resources.resource_type import Column
from trainwright.objects import Object
from trainwright.objects.conditions import find_condition
from trainwright.objects.paths import value_at
from trainwright.objects.selectors import format_labels
from trainwright.objects.times import human_duration, parse_time

NONE = "<none>"
UNKNOWN = "<unknown>"

_ACCESS_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
_ROLE_LABEL = "node-role.kubernetes.io/"


def age(timestamp: str | None, now: datetime) -> str:
    """How long ago, as kubectl prints it."""
    if not timestamp:
        return UNKNOWN
    try:
        return human_duration(now - parse_time(timestamp))
    except ValueError:
        return "<invalid>"


def _at(*path: str, default: Any = None) -> Callable[[Object, datetime], Any]:
    return lambda obj, _now: value_at(obj, *path, default=default)


NAME = Column("Name", _at("metadata", "name"), format="name", description="Name of the object, unique in its namespace")
AGE = Column(
    "Age", lambda obj, now: age(value_at(obj, "metadata", "creationTimestamp"), now), description="Time since creation"
)


def _size(*fields: str) -> Callable[[Object, datetime], int]:
    return lambda obj, _now: sum(len(obj.get(field) or ()) for field in fields)


DEFAULT = (NAME, AGE)
CONFIG_MAP = (NAME, Column("Data", _size("data", "binaryData"), "string"), AGE)
SECRET = (NAME, Column("Type", _at("type")), Column("Data", _size("data"), "string"), AGE)
WEBHOOK_CONFIGURATION = (NAME, Column("Webhooks", _size("webhooks"), "integer"), AGE)
LEASE = (NAME, Column("Holder", _at("spec", "holderIdentity", default="")), AGE)
SCALE = (
    NAME,
    Column("Desired", _at("spec", "replicas", default=0), "integer"),
    Column("Available", _at("status", "replicas", default=0), "integer"),
    AGE,
)


def _requested_duration(request: Object, _now: datetime) -> str:
    seconds = value_at(request, "spec", "expirationSeconds")
    return NONE if seconds is None else human_duration(timedelta(seconds=seconds))


def _request_condition(request: Object, _now: datetime) -> str:
    status = request.get("status") or {}
    types = {condition.get("type") for condition in status.get("conditions") or ()}
    decision = next((type_ for type_ in ("Denied", "Approved") if type_ in types), "Pending")
    return decision + (",Failed" if "Failed" in types else "") + (",Issued" if status.get("certificate") else "")


CERTIFICATE_SIGNING_REQUEST = (
    NAME,
    AGE,
    Column("SignerName", _at("spec", "signerName")),
    Column("Requestor", _at("spec", "username", default="")),
    Column("RequestedDuration", _requested_duration),
    Column("Condition", _request_condition),
)
NAMESPACE = (NAME, Column("Status", _at("status", "phase")), AGE)


def _quota_amounts(*, limits: bool) -> Callable[[Object, datetime], str]:
    def cell(quota: Object, _now: datetime) -> str:
        hard, used = (value_at(quota, "status", name, default={}) for name in ("hard", "used"))
        return ", ".join(
            f"{name}: {used.get(name, '0')}/{hard[name]}"
            for name in sorted(hard)
            if name.startswith("limits.") is limits
        )

    return cell


RESOURCE_QUOTA = (
    NAME,
    Column("Request", _quota_amounts(limits=False)),
    Column("Limit", _quota_amounts(limits=True)),
    AGE,
)
PRIORITY_CLASS = (
    NAME,
    Column("Value", _at("value", default=0), type="integer"),
    Column("Global-Default", _at("globalDefault", default=False), type="boolean"),
    AGE,
    Column("PreemptionPolicy", _at("preemptionPolicy", default="")),
)
CREATED_AT = (NAME, Column("Created At", _at("metadata", "creationTimestamp"), type="date"))
"""The real server's columns for kinds without a printer."""


def _service_address(service: Object, _now: datetime) -> str:
    return str(value_at(service, "spec", "clusterIP", default="") or NONE)


def _external_address(service: Object, _now: datetime) -> str:
    spec = service.get("spec", {})
    if spec.get("type") == "ExternalName":
        return str(spec.get("externalName", NONE))
    ingress = value_at(service, "status", "loadBalancer", "ingress", default=[])
    addresses = [*spec.get("externalIPs", []), *(point.get("ip") or point.get("hostname", "") for point in ingress)]
    return ",".join(addresses) or ("<pending>" if spec.get("type") == "LoadBalancer" else NONE)


def _service_ports(service: Object, _now: datetime) -> str:
    shown = []
    for port in value_at(service, "spec", "ports", default=[]):
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port['port']}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or NONE


SERVICE = (
    NAME,
    Column("Type", _at("spec", "type")),
    Column("Cluster-IP", _service_address),
    Column("External-IP", _external_address),
    Column("Port(s)", _service_ports),
    AGE,
    Column("Selector", lambda obj, _now: format_labels(value_at(obj, "spec", "selector") or {}) or NONE, priority=1),
)


_SHOWN_ENDPOINTS = 3


def _first_ones(shown: list[str], nothing: str) -> str:
    more = len(shown) - _SHOWN_ENDPOINTS
    text = ",".join(shown[:_SHOWN_ENDPOINTS])
    return f"{text} + {more} more..." if more > 0 else text or nothing


def _endpoints(endpoints: Object, _now: datetime) -> str:
    subsets = endpoints.get("subsets") or []
    shown = []
    for subset in subsets:
        addresses = [str(address["ip"]) for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or []
        for port in ports:
            shown += [host_and_port(address, port["port"]) for address in addresses]
        if not ports:
            shown += addresses
    return _first_ones(shown, "") if subsets else NONE


def _slice_ports(endpoint_slice: Object, _now: datetime) -> str:
    ports = endpoint_slice.get("ports") or []
    return _first_ones([str(port.get("port") or port.get("name", "*")) for port in ports], "<unset>")


def _slice_addresses(endpoint_slice: Object, _now: datetime) -> str:
    endpoints = endpoint_slice.get("endpoints") or []
    return _first_ones([address for endpoint in endpoints for address in endpoint.get("addresses") or ()], "<unset>")


def host_and_port(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


ENDPOINTS = (NAME, Column("Endpoints", _endpoints), AGE)
ENDPOINT_SLICE = (
    NAME,
    Column("AddressType", _at("addressType")),
    Column("Ports", _slice_ports),
    Column("Endpoints", _slice_addresses),
    AGE,
)


def _node_status(node: Object, _now: datetime) -> str:
    ready = find_condition(node.get("status") or {}, "Ready") or {}
    status = {"True": "Ready", "False": "NotReady"}.get(ready.get("status", ""), "Unknown")
    return f"{status},SchedulingDisabled" if value_at(node, "spec", "unschedulable") else status


def _node_roles(node: Object, _now: datetime) -> str:
    labels = value_at(node, "metadata", "labels", default={})
    return ",".join(sorted(key[len(_ROLE_LABEL) :] for key in labels if key.startswith(_ROLE_LABEL))) or NONE


def _node_address(kind: str) -> Callable[[Object, datetime], str]:
    def cell(node: Object, _now: datetime) -> str:
        addresses = value_at(node, "status", "addresses", default=[])
        return next((str(address.get("address")) for address in addresses if address.get("type") == kind), NONE)

    return cell


def _node_info(field: str) -> Callable[[Object, datetime], Any]:
    return _at("status", "nodeInfo", field, default=UNKNOWN)


NODE = (
    NAME,
    Column("Status", _node_status),
    Column("Roles", _node_roles),
    AGE,
    Column("Version", _at("status", "nodeInfo", "kubeletVersion", default="")),
    Column("Internal-IP", _node_address("InternalIP"), priority=1),
    Column("External-IP", _node_address("ExternalIP"), priority=1),
    Column("OS-Image", _node_info("osImage"), priority=1),
    Column("Kernel-Version", _node_info("kernelVersion"), priority=1),
    Column("Container-Runtime", _node_info("containerRuntimeVersion"), priority=1),
)


def _last_seen(event: Object, now: datetime) -> str:
    last = value_at(event, "series", "lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return age(last or value_at(event, "metadata", "creationTimestamp"), now)


def _first_seen(event: Object, now: datetime) -> str:
    return age(event.get("firstTimestamp") or event.get("eventTime"), now)


def _event_object(event: Object, _now: datetime) -> str:
    involved = event.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _event_source(event: Object, _now: datetime) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent", "")
    host = source.get("host")
    return f"{component}, {host}" if host else str(component)


EVENT = (
    Column("Last Seen", _last_seen),
    Column("Type", _at("type", default="")),
    Column("Reason", _at("reason", default="")),
    Column("Object", _event_object),
    Column("Subobject", _at("involvedObject", "fieldPath", default=""), priority=1),
    Column("Source", _event_source, priority=1),
    Column("Message", lambda obj, _now: str(obj.get("message", "")).strip()),
    Column("First Seen", _first_seen, priority=1),
    Column("Count", lambda obj, _now: value_at(obj, "series", "count") or obj.get("count") or 1, priority=1),
    Column("Name", _at("metadata", "name"), priority=1, format="name"),
)


def _modes(modes: list[str] | None) -> str:
    return ",".join(_ACCESS_MODES.get(mode, mode) for mode in modes or ())


def _phase(volume: Object, _now: datetime) -> str:
    return (
        "Terminating"
        if value_at(volume, "metadata", "deletionTimestamp")
        else str(value_at(volume, "status", "phase", default=""))
    )


def _volume_claim(volume: Object, _now: datetime) -> str:
    claim = value_at(volume, "spec", "claimRef", default={})
    return f"{claim.get('namespace', '')}/{claim['name']}" if claim.get("name") else ""


_VOLUME_CLASS = Column("VolumeAttributesClass", _at("spec", "volumeAttributesClassName", default="<unset>"))
_VOLUME_MODE = Column("VolumeMode", _at("spec", "volumeMode", default="<unset>"), priority=1)

PERSISTENT_VOLUME = (
    NAME,
    Column("Capacity", _at("spec", "capacity", "storage", default="")),
    Column("Access Modes", lambda obj, _now: _modes(value_at(obj, "spec", "accessModes"))),
    Column("Reclaim Policy", _at("spec", "persistentVolumeReclaimPolicy", default="")),
    Column("Status", _phase),
    Column("Claim", _volume_claim),
    Column("StorageClass", _at("spec", "storageClassName", default="")),
    _VOLUME_CLASS,
    Column("Reason", _at("status", "reason", default="")),
    AGE,
    _VOLUME_MODE,
)

PERSISTENT_VOLUME_CLAIM = (
    NAME,
    Column("Status", _phase),
    Column("Volume", _at("spec", "volumeName", default="")),
    Column("Capacity", lambda obj, _now: value_at(obj, "status", "capacity", "storage", default="")),
    Column(
        "Access Modes",
        lambda obj, _now: _modes(value_at(obj, "status", "accessModes") if value_at(obj, "spec", "volumeName") else []),
    ),
    Column("StorageClass", _at("spec", "storageClassName", default="")),
    _VOLUME_CLASS,
    AGE,
    _VOLUME_MODE,
)

_DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def _class_name(storage_class: Object, _now: datetime) -> str:
    name = str(value_at(storage_class, "metadata", "name"))
    default = value_at(storage_class, "metadata", "annotations", _DEFAULT_CLASS) == "true"
    return f"{name} (default)" if default else name


STORAGE_CLASS = (
    Column("Name", _class_name, format="name"),
    Column("Provisioner", _at("provisioner")),
    Column("ReclaimPolicy", _at("reclaimPolicy")),
    Column("VolumeBindingMode", _at("volumeBindingMode")),
    Column("AllowVolumeExpansion", lambda obj, _now: bool(obj.get("allowVolumeExpansion"))),
    AGE,
)


def _bound_role(binding: Object, _now: datetime) -> str:
    return f"{value_at(binding, 'roleRef', 'kind')}/{value_at(binding, 'roleRef', 'name')}"


def _subjects(kind: str) -> Column:
    def cell(binding: Object, _now: datetime) -> str:
        subjects = [subject for subject in binding.get("subjects") or () if subject.get("kind") == kind]
        prefixed = kind == "ServiceAccount"
        return ", ".join(
            f"{subject.get('namespace', '')}/{subject['name']}" if prefixed else subject["name"] for subject in subjects
        )

    return Column(f"{kind}s", cell, priority=1)


ROLE_BINDING = (
    NAME,
    Column("Role", _bound_role),
    AGE,
    _subjects("User"),
    _subjects("Group"),
    _subjects("ServiceAccount"),
)


def custom_columns(definitions: list[Object]) -> tuple[Column, ...]:
    """Name, then a CRD version's additionalPrinterColumns; Age alone where it has none."""
    if not definitions:
        return DEFAULT
    return (NAME, *(_custom_column(definition) for definition in definitions))


def _custom_column(definition: Object) -> Column:
    find = compile_path(definition["jsonPath"])
    kind = definition["type"]

    def cell(obj: Object, now: datetime) -> Any:
        values = find(obj)
        if not values:
            return None
        if kind == "date":
            return age(str(values[0]), now)
        if kind == "string":
            return ",".join(_text(value) for value in values)
        return values[0]

    return Column(
        definition["name"],
        cell,
        type=kind,
        format=definition.get("format", ""),
        description=definition.get("description", ""),
        priority=definition.get("priority", 0),
    )


def _text(value: Any) -> str:
    return "true" if value is True else "false" if value is False else str(value)
