"""managedFields: which field manager set which field. Server-side apply finds conflicts and removals by them."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.writes.fieldpath import Path, flatten, from_fields_v1, to_fields_v1
from trainwright.objects import Object
from trainwright.objects.times import format_time

_STRUCTS: set[Path] = {("f:spec",), ("f:status",)}
"""They always exist in the Go types of built-in kinds, so no manager owns them as a whole."""


@dataclass(frozen=True, slots=True)
class FieldManager:
    """The author of a write, with its time and subresource."""

    name: str
    now: datetime
    subresource: str = ""
    operation: str = "Update"


@dataclass(slots=True)
class ManagedFieldsEntry:
    """The fields of one manager."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    paths: set[Path] = field(default_factory=set)

    def is_of(self, manager: FieldManager) -> bool:
        own = (self.manager, self.operation, self.subresource)
        return own == (manager.name, manager.operation, manager.subresource)

    def to_object(self) -> Object:
        obj = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            **({"time": self.time} if self.time else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": to_fields_v1(self.paths),
        }
        return obj | ({"subresource": self.subresource} if self.subresource else {})


def read_entries(obj: Object | None) -> list[ManagedFieldsEntry]:
    managed = ((obj or {}).get("metadata") or {}).get("managedFields") or []
    return [
        ManagedFieldsEntry(
            str(entry.get("manager", "")),
            str(entry.get("operation", "Update")),
            str(entry.get("apiVersion", "")),
            str(entry.get("subresource", "")),
            str(entry.get("time", "")),
            from_fields_v1(entry.get("fieldsV1")),
        )
        for entry in managed
        if entry
    ]


def write_entries(obj: Object, entries: list[ManagedFieldsEntry]) -> None:
    kept = sorted(
        (entry for entry in entries if entry.paths), key=lambda entry: (entry.operation, entry.time, entry.manager)
    )
    obj["metadata"].pop("managedFields", None)
    if kept:
        obj["metadata"]["managedFields"] = [entry.to_object() for entry in kept]


def record_update(kind: ResourceType, old: Object | None, new: Object, manager: FieldManager) -> None:
    """Makes the manager the owner of the fields that an update changed; `apply_object` records applies itself."""
    if manager.operation == "Apply":
        return
    # kubectl edits managedFields when it migrates an object to server-side apply.
    entries = read_entries(new if "managedFields" in new["metadata"] else old)
    before, after = _flatten_changes(kind, old or _empty(kind), new)
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    if not kind.custom:
        changed -= _STRUCTS
    if kind.has_status and not manager.subresource:
        changed = {path for path in changed if path[0] != "f:status"}  # only the subresource writes the status
    removed = before.keys() - after.keys()
    if changed or removed:
        own = next((entry for entry in entries if entry.is_of(manager)), None)
        if own is None:
            own = ManagedFieldsEntry(
                manager.name, manager.operation, kind.resource.api_version, manager.subresource, ""
            )
            entries.append(own)
        for entry in entries:
            entry.paths -= removed
            if entry is not own:
                entry.paths -= changed
        own.paths |= changed
        own.time = format_time(manager.now)
    write_entries(new, entries)


def _empty(kind: ResourceType) -> Object:
    """An object without any fields; Go types of built-in kinds always have spec and status."""
    return {"metadata": {}} if kind.custom else {"metadata": {}, "spec": {}, "status": {}}


def _flatten_changes(kind: ResourceType, old: Object, new: Object) -> tuple[dict[Path, Any], dict[Path, Any]]:
    """Both objects flattened, without top-level fields that are equal."""
    differing = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    sides = ({key: value for key, value in side.items() if key in differing} for side in (old, new))
    before, after = (flatten(side, kind.schema.root, kind.schema.lookup) for side in sides)
    return before, after
