"""Strategies of the RBAC kinds."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from trainwright.cluster.apiserver.resources.resource_type import Strategy
from trainwright.cluster.apiserver.resources.strategies.labels import label_selector_errors
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, invalid, not_supported, required
from trainwright.objects.names import dns_subdomain_problem, path_segment_problem

_GROUP = "rbac.authorization.k8s.io"
_SUBJECT_KINDS = ("ServiceAccount", "User", "Group")
_ROLE_REF_FIELDS = {"APIGroup": "apiGroup", "Kind": "kind", "Name": "name"}
"""Go's field names, which the real server's message shows, and those of the API."""


def _prepare_role(role: Object, _old: Object | None = None) -> None:
    """The real server returns `rules: null` where there are none."""
    role.setdefault("rules", None)


def _cluster_role_errors(role: Object) -> Iterator[FieldError]:
    yield from _rule_errors(role, namespaced=False)
    aggregation = role.get("aggregationRule")
    if aggregation is not None and not aggregation.get("clusterRoleSelectors"):
        detail = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        yield required("aggregationRule.clusterRoleSelectors", detail)
    for index, selector in enumerate((aggregation or {}).get("clusterRoleSelectors") or ()):
        yield from label_selector_errors(selector, f"aggregationRule.clusterRoleSelectors[{index}]")


def _rule_errors(role: Object, *, namespaced: bool = True) -> Iterator[FieldError]:
    for index, rule in enumerate(role.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            yield required(f"{path}.verbs", "verbs must contain at least one value")
        if urls := rule.get("nonResourceURLs"):
            if namespaced:
                detail = "namespaced rules cannot apply to non-resource URLs"
                yield invalid(f"{path}.nonResourceURLs", urls, detail)
            if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                yield invalid(f"{path}.nonResourceURLs", urls, detail)
            continue
        if not rule.get("apiGroups"):
            yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required(f"{path}.resources", "resource rules must supply at least one resource")


def _default_binding(binding: Object) -> None:
    reference = binding.setdefault("roleRef", {})
    reference["apiGroup"] = reference.get("apiGroup") or _GROUP
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in {"User", "Group"} and not subject.get("apiGroup"):
            subject["apiGroup"] = _GROUP


def _binding_errors(binding: Object, *, namespaced: bool = True) -> Iterator[FieldError]:
    reference = binding["roleRef"]
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    name = reference.get("name", "")
    if reference["apiGroup"] != _GROUP:
        yield not_supported("roleRef.apiGroup", reference["apiGroup"], [_GROUP])
    if reference.get("kind", "") not in kinds:
        yield not_supported("roleRef.kind", reference.get("kind", ""), kinds)
    if not name:
        yield required("roleRef.name")
    elif problem := path_segment_problem(name):
        yield invalid("roleRef.name", name, problem)
    for index, subject in enumerate(binding.get("subjects") or ()):
        yield from _subject_errors(subject, f"subjects[{index}]", namespaced=namespaced)


def _subject_errors(subject: Object, path: str, *, namespaced: bool) -> Iterator[FieldError]:
    name, kind, group = (subject.get(field, "") for field in ("name", "kind", "apiGroup"))
    if not name:
        yield required(f"{path}.name")
    if kind not in _SUBJECT_KINDS:
        yield not_supported(f"{path}.kind", kind, _SUBJECT_KINDS)
        return
    expected = "" if kind == "ServiceAccount" else _GROUP
    if kind == "ServiceAccount" and name and (problem := dns_subdomain_problem(name)):
        yield invalid(f"{path}.name", name, problem)
    if group != expected:
        yield not_supported(f"{path}.apiGroup", group, [expected])
    if kind == "ServiceAccount" and not namespaced and not subject.get("namespace"):
        yield required(f"{path}.namespace")


def _validate_binding_update(new: Object, old: Object) -> list[FieldError]:
    if new["roleRef"] == old["roleRef"]:
        return []
    reference = {name: new["roleRef"].get(field, "") for name, field in _ROLE_REF_FIELDS.items()}
    return [invalid("roleRef", reference, "cannot change roleRef")]


ROLE = Strategy(prepare_for_create=_prepare_role, prepare_for_update=_prepare_role, validate=_rule_errors)
CLUSTER_ROLE = replace(ROLE, validate=_cluster_role_errors)
ROLE_BINDING = Strategy(
    set_defaults=_default_binding, validate=_binding_errors, validate_update=_validate_binding_update
)
CLUSTER_ROLE_BINDING = replace(ROLE_BINDING, validate=partial(_binding_errors, namespaced=False))
