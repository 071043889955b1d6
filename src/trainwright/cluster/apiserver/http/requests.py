"""A request as values: which object or collection its path means, what its query asks for, how it wants the answer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.storage.store import Stored
from trainwright.objects import Object
from trainwright.objects.paths import value_at
from trainwright.objects.selectors import LabelSelector, SelectorError, parse_field_selector, parse_label_selector

_MOST_DIGITS = 18
"""Of a number that the real server takes, whose integers have 64 bits."""

_NAMESPACE_SUBRESOURCES = {"status", "finalize"}


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names. Without a name it is a collection; `namespace` is None for all namespaces together."""

    kind: ResourceType
    namespace: str | None = None
    name: str = ""
    subresource: str = ""

    @property
    def scope(self) -> str:
        """The namespace of the store's key."""
        return self.namespace or ""


def read_target(path: str, registry: Registry) -> Target | None:
    """The target of `/api/v1/…` or `/apis/GROUP/VERSION/…`; None if nothing is served there."""
    parts = [part for part in path.split("/") if part]
    if not parts or parts[0] not in {"api", "apis"}:
        return None
    group, version, rest = ("", parts[1:2], parts[2:]) if parts[0] == "api" else (parts[1:2], parts[2:3], parts[3:])
    if not version or not rest:
        return None
    namespace = None
    if rest[0] == "namespaces" and len(rest) >= 3 and not (len(rest) == 3 and rest[2] in _NAMESPACE_SUBRESOURCES):
        namespace, rest = rest[1], rest[2:]
    kind = registry.find(group[0] if group else "", version[0], rest[0])
    if kind is None or len(rest) > 3 or (namespace is not None and not kind.resource.namespaced):
        return None
    name, subresource = (*rest[1:], "", "")[:2]
    if subresource and subresource not in kind.subresources:
        return None
    if kind.resource.namespaced and name and namespace is None:
        return None
    return Target(kind, namespace, name, subresource)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a collection are wanted."""

    labels: LabelSelector
    fields: tuple[Callable[[Object], bool], ...]
    name: str = ""
    """Set when a single object is asked for by `metadata.name`."""

    @property
    def everything(self) -> bool:
        return not self.labels.requirements and not self.fields

    def matches(self, stored: Stored) -> bool:
        if self.everything:
            return True
        obj = stored.obj
        return self.labels.matches(obj["metadata"].get("labels") or {}) and all(test(obj) for test in self.fields)


def read_selection(query: Mapping[str, str], kind: ResourceType) -> Selection:
    try:
        labels = parse_label_selector(query.get("labelSelector", ""))
        terms = parse_field_selector(query.get("fieldSelector", ""))
    except SelectorError as error:
        raise errors.bad_request(str(error)) from error
    known = {"metadata.name": "", "metadata.namespace": ""} | dict(kind.selectable_fields)
    tests = []
    name = ""
    for term in terms:
        if term.path not in known:
            raise errors.bad_request(f"field label not supported: {term.path}")
        tests.append(_field_test(term.path, term.value, equal=term.equal, absent=known[term.path]))
        if term.path == "metadata.name" and term.equal:
            name = term.value
    return Selection(labels, tuple(tests), name)


def _field_test(path: str, wanted: str, *, equal: bool, absent: str) -> Callable[[Object], bool]:
    keys = path.split(".")

    def test(obj: Object) -> bool:
        value = value_at(obj, *keys)
        if path == "source" and isinstance(value, dict):
            value = value.get("component")
        text = absent if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        return (text == wanted) is equal

    return test


@dataclass(frozen=True, slots=True)
class Form:
    """The shape of the answer: plain objects, a Table, or metadata alone."""

    name: str = ""  # "", "Table", "PartialObjectMetadata"
    include: str = "Metadata"
    """What a Table's rows carry: None, Metadata or Object."""


_PLAIN = Form()


def read_form(accept: str, query: Mapping[str, str]) -> Form:
    """The first form of the Accept header that can be served; JSON is understood by every client."""
    for choice in accept.split(","):
        media, *parameters = (part.strip() for part in choice.split(";"))
        settings = dict(part.split("=", 1) for part in parameters if "=" in part)
        if media not in {"application/json", "*/*", "application/*", ""}:
            continue
        if settings.get("g") == "meta.k8s.io" and settings.get("v") in {"v1", "v1beta1"}:
            match settings.get("as"):
                case "Table":
                    return Form("Table", query.get("includeObject", "Metadata"))
                case "PartialObjectMetadata" | "PartialObjectMetadataList":
                    return Form("PartialObjectMetadata")
        if "as" not in settings:
            return _PLAIN
    return _PLAIN


def flag(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "").lower() in {"true", "1"}


def whole_number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit()) or len(text) > _MOST_DIGITS:
        raise errors.bad_request(f"{name}: {text[:40]!r} is not a whole number of at most {_MOST_DIGITS} digits")
    return int(text)
