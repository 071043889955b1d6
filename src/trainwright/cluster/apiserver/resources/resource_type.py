"""A served resource as a value: names, schema, strategy, printer columns. The handlers are generic over it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from trainwright.cluster.apiserver.schema.decoding import ObjectSchema
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


def _nothing(*_objects: Object) -> None:
    return None


def _none(*_objects: Object) -> list[Any]:
    return []


def _never(_obj: Object) -> bool:
    return False


def clear_status(obj: Object) -> None:
    obj["status"] = {}


def keep_spec(new: Object, old: Object) -> None:
    new["spec"] = old.get("spec", {})


@dataclass(frozen=True, slots=True)
class Strategy:
    """What is specific to a kind. `set_…` and `prepare_for_…` change the object in place."""

    set_defaults: Callable[[Object], None] = _nothing
    set_user: Callable[[Object, Object], None] = _nothing
    """Sets the fields of a new object that name its author, a `UserInfo` of authentication.k8s.io/v1."""
    prepare_for_create: Callable[[Object], None] = _nothing
    prepare_for_update: Callable[[Object, Object], None] = _nothing
    prepare_for_status_update: Callable[[Object, Object], None] = _nothing
    prepare_for_delete: Callable[[Object], None] = _nothing
    """Changes a copy of an object that is marked for deletion."""
    waits_for_cleanup: Callable[[Object], bool] = _never
    """True if a deleted object stays although it has no finalizers in its metadata."""
    is_expired: Callable[[Object, datetime], bool] | None = None
    """True if the server deletes the object by itself; None if it never does."""
    generate: Callable[[Object], None] | None = None
    """Sets fields of a new object that depend on its uid, before it is validated; no field manager owns them."""
    validate: Callable[[Object], Iterable[FieldError]] = _none
    validate_update: Callable[[Object, Object], list[FieldError]] = _none
    validate_status: Callable[[Object, Object], list[FieldError]] = _none
    warnings: Callable[[Object], list[str]] = _none
    """About fields that this server stores and cannot honour."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """Between the objects of a resource and those of the core resource as which they are stored."""

    to_storage: Callable[[Object], Object]
    from_storage: Callable[[Object], Object]
    validate_new: Callable[[Object], list[FieldError]]


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The fields that the `autoscaling/v1 Scale` of an object shows. The selector is a text, or a LabelSelector."""

    replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceType:
    """One resource in one version."""

    resource: Resource
    singular: str
    schema: ObjectSchema
    columns: tuple[Column, ...]
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    refused_subresources: Mapping[str, str] = field(default_factory=dict)
    """Subresources of the real server that this one does not serve, with what the client is told; `{namespace}` and
    `{name}` are those of the object."""
    strategy: Strategy = Strategy()
    validate_name: Callable[[str], str | None] = dns_subdomain_problem
    selectable_fields: Mapping[str, str] = field(default_factory=dict)
    """The selectable fields besides metadata.name and metadata.namespace, with the value that an absent field has."""
    custom: bool = False
    storage_version: str = ""
    storage_group: str | None = None
    """The group in which the objects are stored, if it is another one than the resource's."""
    conversion: Conversion | None = None
    """For a resource whose fields differ from those of the stored objects."""
    scale: ScalePaths | None = None
    counts_generation: bool = False
    graceful_deletion: bool = False
    """DELETE waits for the kubelet."""
    default_propagation: str | None = None
    """The propagation policy of a DELETE that names none."""
    returns_deleted_object: bool = False
    """DELETE returns the object; for other kinds it returns a Status."""
    warning: str = ""
    """Sent with every response: this version of the resource is deprecated."""

    @property
    def key(self) -> str:
        """The resource's name in the store. All versions of a resource share their objects."""
        if self.storage_group:
            return f"{self.resource.plural}.{self.storage_group}"
        if self.storage_group == "":
            return self.resource.plural
        return self.resource.qualified_plural

    @property
    def storage_api_version(self) -> str:
        group = self.resource.group if self.storage_group is None else self.storage_group
        return f"{group}/{self.storage_version}" if group else self.storage_version

    @property
    def items_kind(self) -> str:
        return self.list_kind or f"{self.resource.kind}List"

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources
