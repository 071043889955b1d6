"""One served resource as a value: names, schema, rules, columns. Everything that serves requests is generic over it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from trainwright.cluster.apiserver.schema.go_decoding import BadFieldType
from trainwright.cluster.apiserver.schema.structural import (
    Findings,
    Lookup,
    Schema,
    Transition,
    Walk,
    compile_schema,
    compile_transitions,
)
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError
from trainwright.objects.names import dns_subdomain_problem
from trainwright.objects.resources import Resource


@dataclass(frozen=True, slots=True)
class Column:
    """One column of `kubectl get`. Priority 1 is shown by `-o wide` alone."""

    name: str
    cell: Callable[[Object, datetime], Any]
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0


def _nothing(_obj: Object) -> None:
    return None


def _nothing_changes(_new: Object, _old: Object) -> None:
    return None


def _no_errors(_obj: Object) -> list[FieldError]:
    return []


def _no_update_errors(_new: Object, _old: Object) -> list[FieldError]:
    return []


@dataclass(frozen=True, slots=True)
class Rules:
    """What is particular to a kind. `default` and `on_create` complete the object in place; the rest judges it."""

    default: Callable[[Object], None] = _nothing
    on_create: Callable[[Object], None] = _nothing
    on_update: Callable[[Object, Object], None] = _nothing_changes
    on_status_update: Callable[[Object, Object], None] = _nothing_changes
    validate: Callable[[Object], list[FieldError]] = _no_errors
    validate_update: Callable[[Object, Object], list[FieldError]] = _no_update_errors


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where a custom resource keeps what `autoscaling/v1 Scale` shows, as dotted paths."""

    replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] | None


class ObjectSchema:
    """A kind's schema, compiled when the first object of it arrives."""

    def __init__(self, root: Schema, lookup: Lookup, *, builtin: str = "") -> None:
        """`builtin` names the definition of one of Kubernetes' own kinds."""
        self.root = root
        self.lookup = lookup
        self.custom = not builtin
        self._builtin = builtin
        self._walk: Walk | None = None
        self._metadata: Walk | None = None
        self._transitions: Transition | None = None

    def admit(self, obj: Object) -> Findings:
        """Prunes and defaults `obj` in place; what it contains that the schema does not allow is in the findings."""
        if self._walk is None:
            self._walk = compile_schema(self.root, None if self.custom else self.lookup, root=self.custom)
            self._metadata = compile_schema({"$ref": "ObjectMeta"}, self.lookup)
            self._transitions = compile_transitions(self.root) if self.custom else None
        metadata = Findings()
        if self._metadata is not None and self.custom:
            self._metadata(obj["metadata"], "metadata", metadata)
        if metadata.errors:
            wrong = metadata.errors[0]
            below = replace(wrong, path=wrong.path.removeprefix("metadata."))
            raise BadFieldType("ObjectMeta", below, self.lookup)
        found = Findings()
        self._walk(obj, "", found)
        if not self.custom and found.errors:
            raise BadFieldType(self._builtin, found.errors[0], self.lookup)
        if self.custom:
            found.unknown = sorted([*metadata.unknown, *found.unknown])
        return found

    @property
    def has_rules(self) -> bool:
        """The schema carries CEL rules, which are checked only after everything else."""
        return self._transitions is not None

    def transition_errors(self, new: Object, old: Object) -> list[FieldError]:
        return self._transitions(new, old, "") if self._transitions else []


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """One row of the registry."""

    resource: Resource
    singular: str
    schema: ObjectSchema
    columns: tuple[Column, ...]
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    rules: Rules = Rules()
    name_problem: Callable[[str], str | None] = dns_subdomain_problem
    selectable: Mapping[str, str] = field(default_factory=dict)
    """Field selectors beyond metadata.name and metadata.namespace, each with the value that an absent field has."""
    custom: bool = False
    storage_version: str = ""
    scale: ScalePaths | None = None
    counts_generation: bool = False
    graceful: bool = False
    """DELETE waits for a kubelet."""
    returns_deleted: bool = False
    """DELETE answers with the object, where other kinds answer with a Status."""
    warning: str = ""
    """Shown with every answer: a deprecated version of a custom resource."""

    @property
    def key(self) -> str:
        """The name that the store knows it by: all versions of a resource share their objects."""
        return self.resource.qualified_plural

    @property
    def storage_api_version(self) -> str:
        group = self.resource.group
        return f"{group}/{self.storage_version}" if group else self.storage_version

    @property
    def items_kind(self) -> str:
        return self.list_kind or f"{self.resource.kind}List"

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources
