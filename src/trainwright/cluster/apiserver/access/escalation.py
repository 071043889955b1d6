"""A user cannot grant permissions that the user does not have, unless the verbs `escalate` or `bind` allow it."""

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.authorizer import Authorizer
from trainwright.cluster.apiserver.access.request_info import Attributes
from trainwright.cluster.apiserver.access.rules import PolicyRule, describe_missing, missing_rules, quoted_list
from trainwright.cluster.apiserver.access.users import UserInfo
from trainwright.objects import Object
from trainwright.objects.resources import CLUSTER_ROLES, ROLES, Resource

_GC_FIELDS = ("ownerReferences", "finalizers", "managedFields")


def check_escalation(
    authorizer: Authorizer, user: UserInfo, resource: Resource, request: Attributes, new: Object, old: Object | None
) -> None:
    """Refuses a role or binding that would give more than its writer has."""
    if resource.group != ROLES.group or user.is_master or (old is not None and _only_changes_gc_fields(new, old)):
        return
    if resource in {ROLES, CLUSTER_ROLES}:
        _check_role(authorizer, user, resource, request, new, old)
    else:
        _check_binding(authorizer, user, resource, request.namespace, new)


def _check_role(
    authorizer: Authorizer, user: UserInfo, resource: Resource, request: Attributes, new: Object, old: Object | None
) -> None:
    escalate = Attributes("escalate", resource.group, resource.plural, "", request.namespace, request.name)
    if authorizer.authorize(user, escalate).allowed:
        return
    name = new["metadata"].get("name", "")
    rules = [PolicyRule.read(rule) for rule in new.get("rules") or ()]
    _confirm(authorizer, user, resource, name, request.namespace, rules)
    if any((role or {}).get("aggregationRule") for role in (new, old)):
        # A user who has them may escalate.
        raise errors.forbidden(resource, name, "must have cluster-admin privileges to use the aggregationRule")


def _check_binding(authorizer: Authorizer, user: UserInfo, resource: Resource, namespace: str, binding: Object) -> None:
    reference = {"apiGroup": ROLES.group} | (binding.get("roleRef") or {})
    roles = {"Role": ROLES, "ClusterRole": CLUSTER_ROLES}.get(reference.get("kind", ""))
    if roles is None:
        return  # validation refuses it
    group, name = reference.get("apiGroup", ""), reference.get("name", "")
    if authorizer.authorize(user, Attributes("bind", group, roles.plural, "", namespace, name)).allowed:
        return
    rules = authorizer.role_rules(reference, namespace)
    if rules is None:
        raise errors.not_found(resource, name)
    _confirm(authorizer, user, resource, binding["metadata"].get("name", ""), namespace, rules)


def _confirm(
    authorizer: Authorizer, user: UserInfo, resource: Resource, name: str, namespace: str, rules: list[PolicyRule]
) -> None:
    missing = missing_rules(authorizer.rules_of(user, namespace), rules)
    if not missing:
        return
    lines = "\n".join(describe_missing(missing))
    why = (
        f'user "{user.name}" (groups={quoted_list(user.groups)}) is attempting to grant RBAC permissions '
        f"not currently held:\n{lines}"
    )
    if found := authorizer.resolution_errors(user, namespace):
        listed = found[0] if len(found) == 1 else "[" + ", ".join(found) + "]"
        why += f"; resolution errors: [{listed}]"
    raise errors.forbidden(resource, name, why)


def _only_changes_gc_fields(new: Object, old: Object) -> bool:
    def rest(obj: Object) -> Object:
        return obj | {"metadata": {key: value for key, value in obj["metadata"].items() if key not in _GC_FIELDS}}

    return rest(new) == rest(old)
