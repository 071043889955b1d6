"""managedFields: which manager set which field. Server-side apply decides conflicts and removals by them."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.writes.fieldsets import Path, decode, encode, flatten
from trainwright.objects import Object
from trainwright.objects.times import format_time


@dataclass(frozen=True, slots=True)
class Author:
    """Who writes, when, and through which subresource."""

    manager: str
    now: datetime
    subresource: str = ""
    operation: str = "Update"


@dataclass(slots=True)
class Entry:
    """One manager's fields."""

    manager: str
    operation: str
    api_version: str
    subresource: str
    time: str
    paths: set[Path] = field(default_factory=set)

    def is_of(self, author: Author) -> bool:
        return (self.manager, self.operation, self.subresource) == (
            author.manager,
            author.operation,
            author.subresource,
        )

    def to_object(self) -> Object:
        obj = {
            "manager": self.manager,
            "operation": self.operation,
            "apiVersion": self.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": encode(self.paths),
        }
        return obj | ({"subresource": self.subresource} if self.subresource else {})


def read_entries(obj: Object | None) -> list[Entry]:
    """The managers that an object's metadata names."""
    managed = ((obj or {}).get("metadata") or {}).get("managedFields") or []
    return [
        Entry(
            str(one.get("manager", "")),
            str(one.get("operation", "Update")),
            str(one.get("apiVersion", "")),
            str(one.get("subresource", "")),
            str(one.get("time", "")),
            decode(one.get("fieldsV1")),
        )
        for one in managed
        if one
    ]


def write_entries(obj: Object, entries: list[Entry]) -> None:
    kept = sorted((one for one in entries if one.paths), key=lambda one: (one.operation, one.time, one.manager))
    obj["metadata"].pop("managedFields", None)
    if kept:
        obj["metadata"]["managedFields"] = [one.to_object() for one in kept]


def record_update(kind: ResourceType, old: Object | None, new: Object, author: Author) -> None:
    """Gives the author what an update changed, and takes it from everybody else. Apply keeps its own books."""
    if author.operation == "Apply":
        return
    # A client that sends managedFields edits them on purpose, which is how kubectl moves to server-side apply.
    entries = read_entries(new if "managedFields" in new["metadata"] else old)
    before, after = _changed_parts(kind, old or _empty(kind), new)
    changed = {path for path, value in after.items() if path not in before or before[path] != value}
    gone = before.keys() - after.keys()
    if changed or gone:
        own = next((one for one in entries if one.is_of(author)), None)
        if own is None:
            own = Entry(author.manager, author.operation, kind.resource.api_version, author.subresource, "")
            entries.append(own)
        for entry in entries:
            entry.paths -= gone
            if entry is not own:
                entry.paths -= changed
        own.paths |= changed
        own.time = format_time(author.now)
    write_entries(new, entries)


def _empty(kind: ResourceType) -> Object:
    """What a kind's object has before anybody sets anything: Kubernetes' own types always have these parts."""
    return {"metadata": {}} if kind.custom else {"metadata": {}, "spec": {}, "status": {}}


def _changed_parts(kind: ResourceType, old: Object, new: Object) -> tuple[dict[Path, Any], dict[Path, Any]]:
    """Both objects flattened, without the top-level parts that are equal."""
    differing = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    sides = ({key: value for key, value in side.items() if key in differing} for side in (old, new))
    before, after = (flatten(side, kind.schema.root, kind.schema.lookup) for side in sides)
    return before, after
