"""RBAC's rules as pure functions: what a rule allows, and whether rules cover others (privilege escalation)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from trainwright.cluster.apiserver.access.request_info import Attributes
from trainwright.objects import Object

_ALL = "*"


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One rule of a role, compiled for fast matching."""

    verbs: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    @classmethod
    def read(cls, rule: Object) -> Self:
        fields = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
        return cls(*(tuple(rule.get(field) or ()) for field in fields))

    def allows(self, wanted: Attributes) -> bool:
        if wanted.verb not in self.verbs and _ALL not in self.verbs:
            return False
        if wanted.path:
            return any(url in {_ALL, wanted.path} or _url_covers(url, wanted.path) for url in self.urls)
        return (
            (wanted.group in self.groups or _ALL in self.groups)
            and self._has_resource(wanted)
            and (not self.names or wanted.name in self.names)
        )

    def _has_resource(self, wanted: Attributes) -> bool:
        if _ALL in self.resources or wanted.combined_resource in self.resources:
            return True
        return bool(wanted.subresource) and f"*/{wanted.subresource}" in self.resources

    def covers(self, single: "PolicyRule") -> bool:
        """Whether this rule allows all that a rule with at most one value in each field allows."""
        return (
            _has_all(self.verbs, single.verbs)
            and _has_all(self.groups, single.groups)
            and all(_ALL in self.resources or self._has_named_resource(resource) for resource in single.resources)
            and all(any(_url_covers(own, url) for own in self.urls) for url in single.urls)
            and (not self.names or (bool(single.names) and set(single.names) <= set(self.names)))
        )

    def _has_named_resource(self, resource: str) -> bool:
        _, slash, subresource = resource.partition("/")
        return resource in self.resources or (bool(slash) and f"*/{subresource}" in self.resources)


def missing_rules(own: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """The parts of the wanted rules that no own rule covers."""
    singles = (single for rule in wanted for single in _single_rules(rule))
    return [single for single in singles if not any(rule.covers(single) for rule in own)]


def describe_missing(missing: Iterable[PolicyRule]) -> list[str]:
    """The real server's text of missing rules: verbs of the same resource in one line, lines sorted."""
    compact: dict[PolicyRule, list[str]] = {}
    for rule in missing:
        key = rule if rule.urls else PolicyRule((), rule.groups, rule.resources, rule.names)
        compact.setdefault(key, []).extend(rule.verbs)
    return sorted({_compact_text(rule, verbs) for rule, verbs in compact.items()})


def _single_rules(rule: PolicyRule) -> Iterator[PolicyRule]:
    for group in rule.groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                if not rule.names:
                    yield PolicyRule((verb,), (group,), (resource,))
                for name in rule.names:
                    yield PolicyRule((verb,), (group,), (resource,), (name,))
    for url in rule.urls:
        for verb in rule.verbs:
            yield PolicyRule((verb,), urls=(url,))


def _compact_text(rule: PolicyRule, verbs: Sequence[str]) -> str:
    fields = {
        "APIGroups": rule.groups,
        "Resources": rule.resources,
        "NonResourceURLs": rule.urls,
        "ResourceNames": rule.names,
        "Verbs": verbs,
    }
    return "{" + ", ".join(f"{name}:{quoted_list(values)}" for name, values in fields.items() if values) + "}"


def quoted_list(values: Iterable[str]) -> str:
    """Go's `%q` of a list of text."""
    return "[" + " ".join(f'"{value}"' for value in values) + "]"


def _has_all(own: Sequence[str], wanted: Iterable[str]) -> bool:
    return _ALL in own or all(value in own for value in wanted)


def _url_covers(own: str, url: str) -> bool:
    return own == url or (own.endswith(_ALL) and url.startswith(own.rstrip(_ALL)))
