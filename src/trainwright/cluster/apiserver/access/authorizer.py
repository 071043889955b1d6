"""Authorization by the RBAC objects in the store. What a user may do is compiled once per change of these objects.

A user cannot grant permissions that the user does not have, unless the verbs `escalate` or `bind` allow it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.request_info import Attributes
from trainwright.cluster.apiserver.access.rules import PolicyRule, describe_missing, missing_rules, quoted_list
from trainwright.cluster.apiserver.access.users import UserInfo, service_account_name
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.storage.store import Change, Key, ObjectStore, Stored
from trainwright.objects import Object
from trainwright.objects.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Resource

_GC_FIELDS = ("ownerReferences", "finalizers", "managedFields")
_MAX_USERS = 1024
"""Users whose grants are kept; impersonation can name any number."""

_Subject = tuple[str, str]
"""`User` or `Group`, and its name. A service account is the user of its name."""


@dataclass(frozen=True, slots=True)
class Decision:
    allowed: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Grant:
    """The rules that one binding gives to a user; `error` names a role that does not exist."""

    source: str
    rules: tuple[PolicyRule, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class _Grants:
    cluster: tuple[_Grant, ...]
    by_namespace: dict[str, tuple[_Grant, ...]]

    def within(self, namespace: str) -> Iterator[_Grant]:
        yield from self.cluster
        if namespace:
            yield from self.by_namespace.get(namespace, ())


class Authorizer:
    """`system:masters` may do everything; any other user what the bindings of its name and groups allow."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._bindings: dict[_Subject, dict[tuple[str, Key], Stored]] = {}
        self._grants = lru_cache(_MAX_USERS)(self._compile)
        for resource in (CLUSTER_ROLES, ROLES):
            store.subscribe(resource.qualified_plural, lambda _change: self._grants.cache_clear())
        for resource in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
            name = resource.qualified_plural
            for stored in store.list(name):
                self._add(name, stored)
            store.subscribe(name, lambda change, name=name: self._binding_changed(name, change))  # type: ignore[misc]

    def authorize(self, user: UserInfo, wanted: Attributes) -> Decision:
        if user.is_master:
            return Decision(allowed=True)
        for grant in self._grants_of(user).within(wanted.namespace):
            if any(rule.allows(wanted) for rule in grant.rules):
                return Decision(allowed=True, reason=f"RBAC: allowed by {grant.source}")
        missing = self.missing_roles(user, wanted.namespace)
        return Decision(allowed=False, reason=f"RBAC: {missing}" if missing else "")

    def check(self, user: UserInfo, wanted: Attributes) -> None:
        """Raises the real server's 403 if the user is not allowed to do this."""
        decision = self.authorize(user, wanted)
        if not decision.allowed:
            raise _forbidden(user, wanted, decision.reason)

    def rules_of(self, user: UserInfo, namespace: str) -> list[PolicyRule]:
        """All rules that apply to the user in a namespace, or cluster-wide if it is empty."""
        return [rule for grant in self._grants_of(user).within(namespace) for rule in grant.rules]

    def missing_roles(self, user: UserInfo, namespace: str) -> str:
        """The real server's message about roles that bindings of the user name and that do not exist; or empty."""
        found = (grant.error for grant in self._grants_of(user).within(namespace))
        messages = list(dict.fromkeys(error for error in found if error))
        return f"[{', '.join(messages)}]" if len(messages) > 1 else "".join(messages)

    def role_rules(self, reference: Object, namespace: str) -> list[PolicyRule] | None:
        """The rules of a role that a binding in this namespace names; None if there is no such role."""
        kind, name = reference.get("kind"), reference.get("name", "")
        resource, scope = (ROLES, namespace) if kind == "Role" else (CLUSTER_ROLES, "")
        role = self._store.get(resource.qualified_plural, scope, name)
        return None if role is None else [PolicyRule.read(rule) for rule in role.obj.get("rules") or ()]

    def check_escalation(
        self, user: UserInfo, resource: Resource, request: Attributes, new: Object, old: Object | None
    ) -> None:
        """Refuses a role or binding that would give more than its writer has."""
        if resource.group != ROLES.group or user.is_master or (old is not None and _only_changes_gc_fields(new, old)):
            return
        if resource in {ROLES, CLUSTER_ROLES}:
            self._check_role(user, resource, request, new, old)
        elif resource in {ROLE_BINDINGS, CLUSTER_ROLE_BINDINGS}:
            self._check_binding(user, resource, request.namespace, new)

    def _check_role(
        self, user: UserInfo, resource: Resource, request: Attributes, new: Object, old: Object | None
    ) -> None:
        escalate = Attributes("escalate", resource.group, resource.plural, "", request.namespace, request.name)
        if self.authorize(user, escalate).allowed:
            return
        name = new["metadata"].get("name", "")
        rules = [PolicyRule.read(rule) for rule in new.get("rules") or ()]
        self._check_granted(user, resource, name, request.namespace, rules)
        if any((role or {}).get("aggregationRule") for role in (new, old)):
            # A user who has them may escalate.
            raise errors.forbidden(resource, name, "must have cluster-admin privileges to use the aggregationRule")

    def _check_binding(self, user: UserInfo, resource: Resource, namespace: str, binding: Object) -> None:
        reference = {"apiGroup": ROLES.group} | (binding.get("roleRef") or {})
        roles = {"Role": ROLES, "ClusterRole": CLUSTER_ROLES}.get(reference.get("kind", ""))
        if roles is None:
            return  # validation refuses it
        group, name = reference.get("apiGroup", ""), reference.get("name", "")
        if self.authorize(user, Attributes("bind", group, roles.plural, "", namespace, name)).allowed:
            return
        rules = self.role_rules(reference, namespace)
        if rules is None:
            raise errors.not_found(resource, name)
        self._check_granted(user, resource, binding["metadata"].get("name", ""), namespace, rules)

    def _check_granted(
        self, user: UserInfo, resource: Resource, name: str, namespace: str, rules: list[PolicyRule]
    ) -> None:
        missing = missing_rules(self.rules_of(user, namespace), rules)
        if not missing:
            return
        lines = "\n".join(describe_missing(missing))
        why = (
            f'user "{user.name}" (groups={quoted_list(user.groups)}) is attempting to grant RBAC permissions '
            f"not currently held:\n{lines}"
        )
        if unresolved := self.missing_roles(user, namespace):
            why += f"; resolution errors: [{unresolved}]"
        raise errors.forbidden(resource, name, why)

    def _binding_changed(self, resource: str, change: Change) -> None:
        self._grants.cache_clear()
        if change.old is not None:
            for subject in _subjects(change.old):
                bindings = self._bindings.get(subject, {})
                bindings.pop((resource, change.old.key), None)
                if not bindings:
                    self._bindings.pop(subject, None)
        if not change.removed:
            self._add(resource, change.new)

    def _add(self, resource: str, stored: Stored) -> None:
        for subject in _subjects(stored):
            self._bindings.setdefault(subject, {})[resource, stored.key] = stored

    def _grants_of(self, user: UserInfo) -> _Grants:
        return self._grants(user.name, user.groups)

    def _compile(self, name: str, groups: tuple[str, ...]) -> _Grants:
        subjects = [("User", name), *(("Group", group) for group in groups)]
        bindings: dict[tuple[str, Key], Stored] = {}
        for subject in subjects:
            bindings |= self._bindings.get(subject, {})
        cluster: list[_Grant] = []
        by_namespace: dict[str, list[_Grant]] = {}
        for (_, (namespace, _name)), stored in sorted(bindings.items(), key=lambda item: item[0]):
            grants = by_namespace.setdefault(namespace, []) if namespace else cluster
            grants.append(self._grant(stored, set(subjects)))
        return _Grants(tuple(cluster), {namespace: tuple(grants) for namespace, grants in by_namespace.items()})

    def _grant(self, binding: Stored, subjects: set[_Subject]) -> _Grant:
        namespace, name = binding.key
        reference = binding.obj["roleRef"]
        subject = next(subject for subject in binding.obj["subjects"] if _subject(subject, namespace) in subjects)
        named = subject["name"]
        if subject["kind"] == "ServiceAccount":
            named = f"{named}/{subject.get('namespace') or namespace}"
        bound = f'RoleBinding "{name}/{namespace}"' if namespace else f'ClusterRoleBinding "{name}"'
        source = f'{bound} of {reference["kind"]} "{reference["name"]}" to {subject["kind"]} "{named}"'
        rules = self.role_rules(reference, namespace)
        if rules is None:
            return _Grant(source, error=_role_not_found(reference))
        return _Grant(source, tuple(rules))


def _role_not_found(reference: Object) -> str:
    """The real server's message has the singular, unlike others."""
    kind = "role" if reference.get("kind") == "Role" else "clusterrole"
    return f'{kind}.{CLUSTER_ROLES.group} "{reference.get("name", "")}" not found'


def _forbidden(user: UserInfo, wanted: Attributes, reason: str) -> StatusError:
    if wanted.is_resource_request:
        where = f'in the namespace "{wanted.namespace}"' if wanted.namespace else "at the cluster scope"
        what = f'resource "{wanted.combined_resource}" in API group "{wanted.group}" {where}'
    else:
        what = f'path "{wanted.path}"'
    text = f'User "{user.name}" cannot {wanted.verb} {what}'
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)
    why = f"{text}: {reason}" if reason else text
    return errors.forbidden(Resource(wanted.group, "", wanted.resource, ""), wanted.name, why)


def _subjects(binding: Stored) -> set[_Subject]:
    found = (_subject(subject, binding.key[0]) for subject in binding.obj.get("subjects") or ())
    return {subject for subject in found if subject is not None}


def _subject(subject: Object, namespace: str) -> _Subject | None:
    kind, name = subject.get("kind", ""), subject.get("name", "")
    if kind in {"User", "Group"}:
        return kind, name
    owner = subject.get("namespace") or namespace
    return ("User", service_account_name(owner, name)) if kind == "ServiceAccount" and owner else None


def _only_changes_gc_fields(new: Object, old: Object) -> bool:
    def rest(obj: Object) -> Object:
        return obj | {"metadata": {key: value for key, value in obj["metadata"].items() if key not in _GC_FIELDS}}

    return rest(new) == rest(old)
