"""`events.k8s.io/v1` as a second view of events, which are stored as those of the core group."""

from trainwright.cluster.apiserver.resources.resource_type import Conversion
from trainwright.cluster.apiserver.schema.builtin import definition
from trainwright.cluster.apiserver.schema.structural import Schema
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, forbidden, required

_CORE_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
"""The fields that have another name in the core group."""

_DEPRECATED = ("deprecatedSource", "deprecatedFirstTimestamp", "deprecatedLastTimestamp", "deprecatedCount")
_VIEW_NAMES = {core: name for name, core in _CORE_NAMES.items()}
SELECTABLE_FIELDS = {
    f"regarding.{name}": ""
    for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
} | {"reason": "", "type": "", "reportingController": ""}


def view_schema() -> Schema:
    core = definition("Event")
    properties = {_VIEW_NAMES.get(name, name): schema for name, schema in core["properties"].items()}
    return core | {"properties": properties, "required": ["eventTime"]}


def from_storage(event: Object) -> Object:
    return {_VIEW_NAMES.get(name, name): value for name, value in event.items()}


def to_storage(event: Object) -> Object:
    core = {_CORE_NAMES.get(name, name): value for name, value in event.items()}
    return {"involvedObject": {}} | core


def validate_new(event: Object) -> list[FieldError]:
    """The rules for events of this version; older clients write those of the core group."""
    texts = ("reportingController", "reportingInstance", "action", "reason")
    found = [required(field) for field in ("eventTime", *texts) if not event.get(field)]
    return found + [forbidden(field, "needs to be unset") for field in _DEPRECATED if event.get(field)]


EVENT_VIEW = Conversion(to_storage, from_storage, validate_new)
