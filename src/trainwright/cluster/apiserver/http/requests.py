"""API requests as values: the resource that a RequestInfo means, the options in query and body."""

import re
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from multidict import MultiDict, MultiMapping

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.request_info import Attributes, RequestInfo
from trainwright.cluster.apiserver.access.users import ADMIN, UserInfo
from trainwright.cluster.apiserver.http.discovery import SUBRESOURCE_VERBS
from trainwright.cluster.apiserver.http.responses import Representation, negotiate
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.storage.store import Stored
from trainwright.cluster.apiserver.writes.deletion import DeleteOptions
from trainwright.cluster.apiserver.writes.managed_fields import FieldManager
from trainwright.objects import Object, field_errors
from trainwright.objects.field_errors import FieldError
from trainwright.objects.names import path_segment_problem
from trainwright.objects.paths import value_at
from trainwright.objects.selectors import LabelSelector, SelectorError, parse_field_selector, parse_label_selector

_MAX_DIGITS = 18
"""The most decimal digits that always fit into a 64-bit integer."""

_OBJECT_VERBS = {"get", "update", "patch", "delete", "watch"}
_COLLECTION_VERBS = {"list", "watch", "create", "deletecollection"}
_OF_MANY = {"list", "watch"}
"""Verbs that can mean the objects of all namespaces."""
_OF_ONE = {"list": "get", "watch": "get", "deletecollection": "delete"}
"""The verbs that RequestInfo has for an empty name, with those of a name."""


@dataclass(frozen=True, slots=True)
class ResourceInfo:
    """The object of a request; a collection if `name` is empty, of all namespaces if `namespace` is None."""

    kind: ResourceType
    namespace: str | None = None
    name: str = ""
    subresource: str = ""

    @property
    def scope(self) -> str:
        """The namespace in the store's key."""
        return self.namespace or ""


def find_resource(info: RequestInfo, registry: Registry) -> ResourceInfo | None:
    """The stored object or collection that a request is for; None if nothing is served at its path."""
    kind = registry.find(info.group, info.version, info.resource) if info.is_resource_request else None
    if kind is None or len(info.rest) > 3 or info.prefix != ("apis" if info.group else "api"):
        return None
    namespaced, name = kind.resource.namespaced, info.name_in_path
    if info.in_namespace != namespaced and (info.in_namespace or len(info.rest) > 1):
        return None
    if info.subresource and (info.subresource not in kind.subresources or info.verb_in_path):
        return None
    if info.verb == "proxy" or (kind.custom and namespaced and not info.namespace and info.verb not in _OF_MANY):
        return None
    return ResourceInfo(kind, info.namespace or None if namespaced else None, name, info.subresource)


def check_verb(info: RequestInfo, resource: ResourceInfo) -> None:
    """Raises 405 if the verb is not served there, 400 if its namespace or name is empty or malformed."""
    verb, namespaced = info.verb, resource.kind.resource.namespaced
    if resource.subresource:
        served: Container[str] = SUBRESOURCE_VERBS[resource.subresource]
        verb = verb if resource.name else _OF_ONE.get(verb, verb)
    else:
        served = _OBJECT_VERBS if resource.name else _COLLECTION_VERBS
    of_many = verb in _OF_MANY
    if verb not in served or (info.method != "GET" and (of_many or verb == "get")):
        raise errors.method_not_allowed()
    if namespaced and not of_many and not info.namespace:
        raise errors.bad_request("Namespace parameter required.") if info.in_namespace else errors.method_not_allowed()
    if resource.subresource and not resource.name:
        raise errors.bad_request("name must be provided")
    if not of_many and (problem := path_segment_problem(resource.name)):
        raise errors.bad_request(f'Name parameter invalid: "{resource.name}": {problem}')


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The protocol to which a client wants to switch, in lower case, and the subprotocols that it offers."""

    protocol: str = ""
    subprotocols: tuple[str, ...] = ()
    passes_descriptors: bool = False
    """True on a Unix socket."""


_NO_UPGRADE = Upgrade()


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request for a resource."""

    info: ResourceInfo
    verb: str
    """That of RequestInfo, for which the authorizer was asked."""
    now: datetime
    query: MultiMapping[str] = field(default_factory=MultiDict)
    accept: str = "application/json"
    content_type: str = "application/json"
    user_agent: str = ""
    body: bytes = b""
    user: UserInfo = ADMIN
    upgrade: Upgrade = _NO_UPGRADE
    warnings: list[str] = field(default_factory=list)
    """Filled by the handlers; each becomes a Warning header."""

    def attributes(self, verb: str) -> Attributes:
        """What the authorizer is asked if the user may do this with the object of the request."""
        resource, info = self.info.kind.resource, self.info
        return Attributes(verb, resource.group, resource.plural, info.subresource, info.scope, info.name)

    @property
    def representation(self) -> Representation:
        return negotiate(self.accept, self.query)

    @property
    def dry_run(self) -> bool:
        values: list[str] = self.query.getall("dryRun", [])
        if set(values) - {"All"}:
            raise self._invalid_option(field_errors.not_supported("dryRun", values, ["All"]))
        return bool(values)

    @property
    def field_validation(self) -> str:
        value = self.query.get("fieldValidation") or "Warn"
        if value not in {"Strict", "Warn", "Ignore"}:
            supported = ["", "Ignore", "Strict", "Warn"]
            raise self._invalid_option(field_errors.not_supported("fieldValidation", value, supported))
        return value

    @property
    def field_manager(self) -> FieldManager:
        """The manager that the client names, else the program in its User-Agent."""
        name = self.query.get("fieldManager") or self.user_agent.partition("/")[0] or "unknown"
        return FieldManager(name, self.now, self.info.subresource)

    def _invalid_option(self, error: FieldError) -> errors.StatusError:
        """Query parameters are the options of their verb."""
        kinds = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
        return errors.invalid_options(kinds.get(self.verb, "DeleteOptions"), error)


@dataclass(frozen=True, slots=True)
class SelectionPredicate:
    """The label and field selectors of a request."""

    labels: LabelSelector
    fields: tuple[Callable[[Object], bool], ...]

    @property
    def matches_all(self) -> bool:
        return not self.labels.requirements and not self.fields

    def matches(self, stored: Stored) -> bool:
        if self.matches_all:
            return True
        obj = stored.obj
        return self.labels.matches(obj["metadata"].get("labels") or {}) and all(test(obj) for test in self.fields)


def read_selectors(query: Mapping[str, str], kind: ResourceType) -> SelectionPredicate:
    try:
        labels = parse_label_selector(query.get("labelSelector", ""))
        terms = parse_field_selector(query.get("fieldSelector", ""))
    except SelectorError as error:
        raise errors.bad_request(str(error)) from error
    known = {"metadata.name": "", "metadata.namespace": ""} | dict(kind.selectable_fields)
    for term in terms:
        if term.path not in known:
            raise errors.bad_request(f"field label not supported: {term.path}")
    tests = [_field_test(term.path, term.value, equal=term.equal, absent=known[term.path]) for term in terms]
    if (conversion := kind.conversion) is not None:
        tests = [_of_view(test, conversion.from_storage) for test in tests]
    return SelectionPredicate(labels, tuple(tests))


def _of_view(test: Callable[[Object], bool], view: Callable[[Object], Object]) -> Callable[[Object], bool]:
    return lambda obj: test(view(obj))


_FIELD_ALIASES = {"status.successful": "status.succeeded"}


def _field_test(path: str, wanted: str, *, equal: bool, absent: str) -> Callable[[Object], bool]:
    keys = _FIELD_ALIASES.get(path, path).split(".")

    def test(obj: Object) -> bool:
        value = value_at(obj, *keys)
        if path == "source" and isinstance(value, dict):
            value = value.get("component")
        text = absent if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        return (text == wanted) is equal

    return test


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteOptionsBody(msgspec.Struct, rename="camel"):
    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    dry_run: list[str] | None = None
    preconditions: _Preconditions | None = None


def read_delete_options(body: Any, query: MultiMapping[str]) -> DeleteOptions:
    """The options of a DELETE: those in its body, then its query parameters."""
    try:
        sent = msgspec.convert(body, _DeleteOptionsBody)
    except msgspec.ValidationError as error:
        raise errors.bad_request(_decoder_message("DeleteOptions", str(error))) from error
    grace = sent.grace_period_seconds
    if grace is None:
        grace = read_integer(query, "gracePeriodSeconds")
    propagation = sent.propagation_policy or query.get("propagationPolicy")
    if propagation is None and sent.orphan_dependents is not None:
        propagation = "Orphan" if sent.orphan_dependents else "Background"
    if propagation not in {None, "Background", "Foreground", "Orphan"}:
        supported = ("Foreground", "Background", "Orphan", "nil")
        unsupported = field_errors.not_supported("propagationPolicy", propagation, supported)
        raise errors.invalid_options("DeleteOptions", unsupported)
    queried: list[str] = query.getall("dryRun", [])
    dry_run = sent.dry_run or queried
    if set(dry_run) - {"All"}:
        raise errors.invalid_options("DeleteOptions", field_errors.not_supported("dryRun", dry_run, ["All"]))
    preconditions = sent.preconditions or _Preconditions()
    return DeleteOptions(grace, propagation, preconditions.uid, preconditions.resource_version, bool(dry_run))


def _decoder_message(kind: str, error: str) -> str:
    """msgspec's error in the words of Go's JSON decoder."""
    given = _GIVEN.search(error)
    path = _PATH.search(error)
    name = {"int": "number", "float": "number", "str": "string"}.get(given[1], given[1]) if given else "value"
    return f"json: cannot unmarshal {name} into Go struct field {kind}{path[1] if path else ''}"


_GIVEN, _PATH = re.compile(r"got `(\w+)`"), re.compile(r"at `\$([^`]*)`")


def read_integer(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > _MAX_DIGITS:
        raise errors.bad_request(f"{name}: {text[:40]!r} is not a whole number of at most {_MAX_DIGITS} digits")
    return int(text)
