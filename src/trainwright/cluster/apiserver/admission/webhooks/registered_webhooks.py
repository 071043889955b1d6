"""Registered admission webhooks as values, and which of them a write concerns."""

import base64
import binascii
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from trainwright.cluster.apiserver.access.users import UserInfo
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.storage.store import ObjectStore, Stored
from trainwright.objects import Object
from trainwright.objects.resources import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Resource,
)
from trainwright.objects.selectors import LabelSelector, read_label_selector

CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"
_CONFIGURATIONS = (VALIDATING_WEBHOOK_CONFIGURATIONS, MUTATING_WEBHOOK_CONFIGURATIONS)


@dataclass(frozen=True, slots=True)
class Webhook:
    """One webhook of a configuration; `client` is its clientConfig."""

    configuration: str
    name: str
    rules: tuple[Object, ...]
    client: Object
    authority: bytes
    versions: tuple[str, ...]
    namespaces: LabelSelector
    objects: LabelSelector
    ignores_failures: bool
    allows_dry_run: bool
    matches_equivalents: bool
    is_reinvoked: bool
    timeout: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A write, as webhooks see it."""

    verb: str
    kind: ResourceType
    subresource: str = ""
    scope: str = ""
    """The namespace of the object; empty for a Namespace."""
    name: str = ""
    user: UserInfo
    dry_run: bool = False
    options: Object = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """Webhooks see a Namespace in itself."""
        return self.name if self.kind.resource == NAMESPACES else self.scope

    @property
    def is_namespaced(self) -> bool:
        return bool(self.scope)


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """What webhooks are asked: the operation, the new object (None if it is deleted), the stored one (None if it is
    created). They add to `warnings`, which the client gets."""

    operation: Operation
    new: Object | None
    old: Object | None
    warnings: list[str]


@dataclass(frozen=True, slots=True)
class Invocation:
    """A webhook to call, and the version of the resource in which it gets the object."""

    webhook: Webhook
    kind: ResourceType


class WebhookSource:
    """The webhooks of all configurations of one resource, in the order in which they are called."""

    def __init__(
        self, store: ObjectStore, resource: Resource, versions_of: Callable[[ResourceType], Iterable[ResourceType]]
    ) -> None:
        self._store = store
        self._resource = resource
        self._versions_of = versions_of
        self._webhooks: tuple[Webhook, ...] | None = None
        self._by_rule: dict[tuple[str, str, str, str, bool], tuple[Invocation, ...]] = {}
        store.subscribe(resource.qualified_plural, lambda _change: self._forget())

    def invocations(self, operation: Operation) -> tuple[Invocation, ...]:
        """The webhooks whose rules match. Their selectors depend on the object and are not checked here."""
        kind = operation.kind
        if kind.resource in _CONFIGURATIONS:
            return ()  # otherwise a broken webhook could not be removed
        if self._webhooks is None:
            self._webhooks = self._load()
        if not self._webhooks:
            return ()
        key = (kind.key, kind.resource.version, operation.subresource, operation.verb, operation.is_namespaced)
        found = self._by_rule.get(key)
        if found is None:
            found = tuple(
                invocation for webhook in self._webhooks if (invocation := self._invocation(webhook, operation))
            )
            self._by_rule[key] = found
        return found

    def _invocation(self, webhook: Webhook, operation: Operation) -> Invocation | None:
        others = [version for version in self._versions_of(operation.kind) if version is not operation.kind]
        for kind in (operation.kind, *(others if webhook.matches_equivalents else ())):
            if any(_rule_matches(rule, kind.resource, operation) for rule in webhook.rules):
                return Invocation(webhook, kind)
        return None

    def _load(self) -> tuple[Webhook, ...]:
        stored = sorted(self._store.list(self._resource.qualified_plural), key=lambda configuration: configuration.key)
        return tuple(
            _read(configuration, webhook)
            for configuration in stored
            for webhook in configuration.obj.get("webhooks") or ()
        )

    def _forget(self) -> None:
        self._webhooks = None
        self._by_rule.clear()


def selectors_match(webhook: Webhook, namespace_labels: dict[str, str] | None, *objects: Object | None) -> bool:
    """Whether the namespace, and the new or the old object, have the labels that the webhook wants."""
    if namespace_labels is not None and not webhook.namespaces.matches(namespace_labels):
        return False
    if not webhook.objects.requirements:
        return True
    return any(
        webhook.objects.matches((obj.get("metadata") or {}).get("labels") or {}) for obj in objects if obj is not None
    )


def _rule_matches(rule: Object, resource: Resource, operation: Operation) -> bool:
    scope = rule.get("scope", "*")
    if scope != "*" and (scope == "Namespaced") is not operation.is_namespaced:
        return False
    return (
        _has(rule.get("operations"), operation.verb)
        and _has(rule.get("apiGroups"), resource.group)
        and _has(rule.get("apiVersions"), resource.version)
        and any(
            _resource_matches(pattern, resource.plural, operation.subresource)
            for pattern in rule.get("resources") or ()
        )
    )


def _resource_matches(pattern: str, plural: str, subresource: str) -> bool:
    resource, _, below = pattern.partition("/")
    return resource in {"*", plural} and below in {"*", subresource}


def _has(patterns: Iterable[str] | None, value: str) -> bool:
    return any(pattern in {"*", value} for pattern in patterns or ())


def _read(configuration: Stored, webhook: Object) -> Webhook:
    client = webhook.get("clientConfig") or {}
    try:
        authority = base64.b64decode(client.get("caBundle") or "")
    except binascii.Error:
        authority = b""
    return Webhook(
        configuration=configuration.key[1],
        name=webhook["name"],
        rules=tuple(webhook.get("rules") or ()),
        client=client,
        authority=authority,
        versions=tuple(webhook.get("admissionReviewVersions") or ()),
        namespaces=read_label_selector(webhook.get("namespaceSelector") or {}),
        objects=read_label_selector(webhook.get("objectSelector") or {}),
        ignores_failures=webhook.get("failurePolicy") == "Ignore",
        allows_dry_run=webhook.get("sideEffects") in {"None", "NoneOnDryRun"},
        matches_equivalents=webhook.get("matchPolicy") == "Equivalent",
        is_reinvoked=webhook.get("reinvocationPolicy") == "IfNeeded",
        timeout=webhook.get("timeoutSeconds", 10),
    )
