"""Strategies of built-in kinds: namespaces, nodes, config maps, secrets, events, volumes, storage classes, quotas,
priority classes, limit ranges. `events.k8s.io/v1` is a second view of events, which are stored as those of the core
group."""

import base64
import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from trainwright.cluster.apiserver.resources.resource_type import Conversion, Strategy, clear_status, keep_spec
from trainwright.cluster.apiserver.resources.strategies.labels import label_selector_errors
from trainwright.cluster.apiserver.schema.builtin import definition
from trainwright.cluster.apiserver.schema.structural import Schema
from trainwright.objects import Object
from trainwright.objects.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from trainwright.objects.kinds.priorities import HIGHEST_USER_PRIORITY, SYSTEM_PREFIX, SYSTEM_PRIORITIES
from trainwright.objects.quantities import parse_quantity
from trainwright.objects.times import parse_time

_ACCESS_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
_DATA_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_NOT_A_DATA_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_TOKEN_SECRET = "kubernetes.io/service-account-token"  # noqa: S105 (a type, no token)
_ACCOUNT_NAME = "kubernetes.io/service-account.name"
_EVENT_LIFETIME = timedelta(hours=1)
_DATA_BYTES = 1024 * 1024
_IMMUTABLE = "field is immutable when `immutable` is set"
_VOLUME_SETTINGS = {
    "capacity", "accessModes", "claimRef", "persistentVolumeReclaimPolicy", "storageClassName", "mountOptions",
    "volumeMode", "nodeAffinity", "volumeAttributesClassName",
}  # fmt: skip
_PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")
CONTAINER = "Container"
_LIMIT_ORDER = (
    ("min", "max", "min", "min"),
    ("min", "defaultRequest", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "max", "defaultRequest", "defaultRequest"),
    ("defaultRequest", "default", "defaultRequest", "defaultRequest"),
    ("min", "default", "default", "min"),
    ("default", "max", "default", "max"),
)
"""The lower and the upper amount, the field that the error names, and the one whose value it shows."""

_LIMIT_WORDS = {"min": "min", "max": "max", "default": "default", "defaultRequest": "default request"}


def _default_namespace(namespace: Object) -> None:
    labels = namespace["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = namespace["metadata"].get("name", "")


def _prepare_new_namespace(namespace: Object) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _prepare_deleted_namespace(namespace: Object) -> None:
    namespace["metadata"].pop("deletionGracePeriodSeconds", None)
    namespace["status"] = (namespace.get("status") or {}) | {"phase": "Terminating"}


def _has_namespace_finalizers(namespace: Object) -> bool:
    return bool((namespace.get("spec") or {}).get("finalizers"))


NAMESPACE = Strategy(
    set_defaults=_default_namespace,
    prepare_for_create=_prepare_new_namespace,
    prepare_for_update=keep_spec,  # its finalizers change through the subresource `finalize` alone
    prepare_for_delete=_prepare_deleted_namespace,
    waits_for_cleanup=_has_namespace_finalizers,
)


def _prepare_new_node(node: Object) -> None:
    node.setdefault("spec", {})
    node.setdefault("status", {})


def _default_node(node: Object) -> None:
    spec = node.get("spec") or {}
    if spec.get("podCIDR") and not spec.get("podCIDRs"):
        spec["podCIDRs"] = [spec["podCIDR"]]


NODE = Strategy(set_defaults=_default_node, prepare_for_create=_prepare_new_node)


def _validate_config_map(config_map: Object) -> list[FieldError]:
    text, binary = config_map.get("data") or {}, config_map.get("binaryData") or {}
    both = [*(("data", key) for key in text), *(("binaryData", key) for key in binary)]
    found = [invalid(f"{field}[{key}]", key, problem) for field, key in both if (problem := _data_key_problem(key))]
    repeated = "duplicate of key present in binaryData"
    found += [invalid(f"data[{key}]", key, repeated) for key in sorted(text.keys() & binary.keys())]
    size = sum(len(value.encode()) for value in text.values()) + sum(map(_decoded_size, binary.values()))
    return [*found, too_long("", _DATA_BYTES)] if size > _DATA_BYTES else found


def _decoded_size(text: str) -> int:
    """The characters of base64."""
    return len(text) // 4 * 3 - text.count("=", len(text) - 2)


def _data_key_problem(key: str) -> str | None:
    """Keys become file names."""
    if not _DATA_KEY.fullmatch(key):
        return _NOT_A_DATA_KEY
    if key in {".", ".."}:
        return f"must not be '{key}'"
    return "must not start with '..'" if key.startswith("..") else None


def _validate_config_update(new: Object, old: Object) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    found = [] if new.get("immutable") else [forbidden("immutable", _IMMUTABLE)]
    changed = [field for field in ("data", "binaryData") if new.get(field) != old.get(field)]
    return found + [forbidden(field, _IMMUTABLE) for field in changed]


CONFIG_MAP = Strategy(validate=_validate_config_map, validate_update=_validate_config_update)


def _default_secret(secret: Object) -> None:
    secret.setdefault("type", "Opaque")
    for key, text in (secret.pop("stringData", None) or {}).items():
        secret.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()


def _validate_secret(secret: Object) -> list[FieldError]:
    keys = secret.get("data") or ()
    found = [invalid(f"data[{key}]", key, problem) for key in keys if (problem := _data_key_problem(key))]
    if sum(_decoded_size(value or "") for value in (secret.get("data") or {}).values()) > _DATA_BYTES:
        found.append(too_long("data", _DATA_BYTES))
    annotations = secret["metadata"].get("annotations") or {}
    if secret["type"] == _TOKEN_SECRET and not annotations.get(_ACCOUNT_NAME):
        found.append(required(f"metadata.annotations[{_ACCOUNT_NAME}]"))
    return found


def _validate_secret_update(new: Object, old: Object) -> list[FieldError]:
    found = _validate_config_update(new, old)
    if new["type"] != old["type"]:
        found.append(invalid("type", new["type"], "field is immutable"))
    return found


SECRET = Strategy(set_defaults=_default_secret, validate=_validate_secret, validate_update=_validate_secret_update)


def _validate_event(event: Object) -> list[FieldError]:
    about = (event.get("involvedObject") or {}).get("namespace", "")
    namespace = event["metadata"].get("namespace", "")
    if about != namespace and not (about == "" and namespace == "default"):
        return [invalid("involvedObject.namespace", about, "does not match event.namespace")]
    return []


def _is_event_expired(event: Object, now: datetime) -> bool:
    """Events are deleted after an hour, which is the real server's default."""
    text = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    return parse_time(text) < now - _EVENT_LIFETIME  # adding to an event of the year 9999 would overflow


EVENT = Strategy(validate=_validate_event, is_expired=_is_event_expired)


def _default_volume(volume: Object) -> None:
    spec = volume.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    if "hostPath" in spec:
        spec["hostPath"].setdefault("type", "")


def _set_pending(obj: Object) -> None:
    obj["status"] = {"phase": "Pending"}


def _validate_volume(volume: Object) -> list[FieldError]:
    spec = volume["spec"]
    found = _access_mode_errors(spec, "")
    capacity = spec.get("capacity") or {}
    if not capacity:
        found.append(required("spec.capacity"))
    elif "storage" not in capacity:
        found.append(not_supported("spec.capacity", capacity, ["storage"]))
    elif parse_quantity(capacity["storage"]) <= 0:
        found.append(invalid("spec.capacity[storage]", capacity["storage"], "must be greater than zero"))
    sources = spec.keys() - _VOLUME_SETTINGS
    if not sources:
        found.append(required("spec", "must specify a volume type"))
    if len(sources) > 1:
        found.append(forbidden(f"spec.{max(sources)}", "may not specify more than 1 volume type"))
    if (policy := spec["persistentVolumeReclaimPolicy"]) not in _RECLAIM_POLICIES:
        found.append(not_supported("spec.persistentVolumeReclaimPolicy", policy, _RECLAIM_POLICIES))
    return found


PERSISTENT_VOLUME = Strategy(set_defaults=_default_volume, prepare_for_create=_set_pending, validate=_validate_volume)


def _default_claim(claim: Object) -> None:
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _validate_claim(claim: Object) -> list[FieldError]:
    spec = claim["spec"]
    found = _access_mode_errors(spec, "at least 1 access mode is required")
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        found.append(required("spec.resources[storage]"))
    elif parse_quantity(size) <= 0:
        found.append(invalid("spec.resources[storage]", size, "must be greater than zero"))
    return found + list(label_selector_errors(spec.get("selector") or {}, "spec.selector"))


def _validate_claim_update(new: Object, old: Object) -> list[FieldError]:
    """Size and attributes class may change; volumeName and storageClassName may be set once."""
    free = {"resources", "volumeAttributesClassName"}
    free |= {key for key in ("volumeName", "storageClassName") if not old["spec"].get(key)}
    before = {key: value for key, value in old["spec"].items() if key not in free}
    after = {key: value for key, value in new["spec"].items() if key not in free}
    if before == after:
        return []
    detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    return [forbidden("spec", detail)]


PERSISTENT_VOLUME_CLAIM = Strategy(
    set_defaults=_default_claim,
    prepare_for_create=_set_pending,
    validate=_validate_claim,
    validate_update=_validate_claim_update,
)


def _access_mode_errors(spec: Object, missing: str) -> list[FieldError]:
    modes = spec.get("accessModes") or []
    if not modes:
        return [required("spec.accessModes", missing)]
    unknown = [mode for mode in modes if mode not in _ACCESS_MODES]
    return [not_supported("spec.accessModes", mode, _ACCESS_MODES) for mode in unknown]


def _default_storage_class(storage_class: Object) -> None:
    storage_class.setdefault("reclaimPolicy", "Delete")
    storage_class.setdefault("volumeBindingMode", "Immediate")


def _validate_storage_class(storage_class: Object) -> list[FieldError]:
    return [] if storage_class.get("provisioner") else [required("provisioner")]


STORAGE_CLASS = Strategy(set_defaults=_default_storage_class, validate=_validate_storage_class)


def _validate_quota(quota: Object) -> list[FieldError]:
    hard = (quota.get("spec") or {}).get("hard") or {}
    return [
        invalid(f"spec.hard[{name}]", value, "must be greater than or equal to 0")
        for name, value in hard.items()
        if parse_quantity(value) < 0
    ]


def _default_quota(quota: Object) -> None:
    quota.setdefault("spec", {})


RESOURCE_QUOTA = Strategy(set_defaults=_default_quota, prepare_for_create=clear_status, validate=_validate_quota)


def _default_priority_class(priority: Object) -> None:
    priority.setdefault("value", 0)
    priority.setdefault("preemptionPolicy", _PREEMPTION_POLICIES[0])
    if not priority.get("globalDefault"):
        priority.pop("globalDefault", None)


def _validate_priority_class(priority: Object) -> list[FieldError]:
    name, value, policy = priority["metadata"].get("name", ""), priority["value"], priority["preemptionPolicy"]
    found = []
    if name.startswith(SYSTEM_PREFIX):
        if problem := _system_problem(name, value, is_default=bool(priority.get("globalDefault"))):
            text = (
                f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: {problem}"
            )
            found.append(forbidden("metadata.name", text))
    elif value > HIGHEST_USER_PRIORITY:
        text = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        found.append(forbidden("value", text))
    if policy not in _PREEMPTION_POLICIES:
        found.append(not_supported("preemptionPolicy", policy, _PREEMPTION_POLICIES))
    return found


def _system_problem(name: str, value: int, *, is_default: bool) -> str:
    if name not in SYSTEM_PRIORITIES:
        return f"{name} is not a known system priority class"
    if value != SYSTEM_PRIORITIES[name]:
        return f"value of {name} PriorityClass must be {SYSTEM_PRIORITIES[name]}"
    return f"globalDefault of {name} PriorityClass must be false" if is_default else ""


def _validate_priority_update(new: Object, old: Object) -> list[FieldError]:
    found = []
    if new["value"] != old["value"]:
        found.append(forbidden("value", "may not be changed in an update."))
    if new["preemptionPolicy"] != old.get("preemptionPolicy"):
        found.append(invalid("preemptionPolicy", new["preemptionPolicy"], "field is immutable"))
    return found


PRIORITY_CLASS = Strategy(
    set_defaults=_default_priority_class, validate=_validate_priority_class, validate_update=_validate_priority_update
)


def _default_limit_range(limit_range: Object) -> None:
    for item in (limit_range.setdefault("spec", {})).get("limits") or ():
        if item.get("type") != CONTAINER:
            continue
        default = (item.get("max") or {}) | (item.get("default") or {})
        request = (item.get("min") or {}) | default | (item.get("defaultRequest") or {})
        for name, value in (("default", default), ("defaultRequest", request)):
            if value:
                item[name] = value


def _validate_limit_range(limit_range: Object) -> list[FieldError]:
    items = (limit_range.get("spec") or {}).get("limits") or []
    types = [item.get("type") or "" for item in items]
    found = [*(error for index, item in enumerate(items) for error in _limit_errors(item, f"spec.limits[{index}]"))]
    repeated = {index for index, type_ in enumerate(types) if type_ in types[:index]}
    return found + [duplicate(f"spec.limits[{index}].type", types[index]) for index in sorted(repeated)]


def _limit_errors(item: Object, path: str) -> Iterator[FieldError]:
    if not item.get("type"):
        yield required(f"{path}.type")
    for lower, upper, field, shown in _LIMIT_ORDER:
        low, high = item.get(lower) or {}, item.get(upper) or {}
        for name in sorted(low.keys() & high.keys()):
            if parse_quantity(low[name]) > parse_quantity(high[name]):
                detail = (
                    f"{_LIMIT_WORDS[lower]} value {low[name]} is greater than {_LIMIT_WORDS[upper]} value {high[name]}"
                )
                yield invalid(f"{path}.{field}[{name}]", (item.get(shown) or {}).get(name), detail)


LIMIT_RANGE = Strategy(set_defaults=_default_limit_range, validate=_validate_limit_range)


_CORE_EVENT_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
"""The fields that have another name in the core group."""

_DEPRECATED_EVENT_FIELDS = (
    "deprecatedSource",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "deprecatedCount",
)
_EVENT_VIEW_NAMES = {core: name for name, core in _CORE_EVENT_NAMES.items()}
EVENT_VIEW_FIELDS = {
    f"regarding.{name}": ""
    for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
} | {"reason": "", "type": "", "reportingController": ""}


def event_view_schema() -> Schema:
    core = definition("Event")
    properties = {_EVENT_VIEW_NAMES.get(name, name): schema for name, schema in core["properties"].items()}
    return core | {"properties": properties, "required": ["eventTime"]}


def _view_of_event(event: Object) -> Object:
    return {_EVENT_VIEW_NAMES.get(name, name): value for name, value in event.items()}


def _event_of_view(event: Object) -> Object:
    core = {_CORE_EVENT_NAMES.get(name, name): value for name, value in event.items()}
    return {"involvedObject": {}} | core


def _validate_event_view(event: Object) -> list[FieldError]:
    """The rules for events of this version; older clients write those of the core group."""
    texts = ("reportingController", "reportingInstance", "action", "reason")
    found = [required(field) for field in ("eventTime", *texts) if not event.get(field)]
    return found + [forbidden(field, "needs to be unset") for field in _DEPRECATED_EVENT_FIELDS if event.get(field)]


EVENT_VIEW = Conversion(_event_of_view, _view_of_event, _validate_event_view)
