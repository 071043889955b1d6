"""The RBAC kinds: defaults, checks, columns and patches.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

from typing import Any

from tests.support.cluster.raw_api import APPLY, STRATEGIC, TABLE, RawApi, Reply
from trainwright.objects.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES, Resource

GROUP = "rbac.authorization.k8s.io"
READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


def role(name: str = "r", *rules: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules or (READ_PODS,))}


def binding(name: str = "b", *subjects: dict[str, Any], kind: str = "Role") -> dict[str, Any]:
    return {"metadata": {"name": name}, "roleRef": {"kind": kind, "name": "r"}, "subjects": list(subjects)}


def path(api: RawApi, resource: Resource, name: str | None = None) -> str:
    return resource.path(api.namespace, name)


async def create(api: RawApi, resource: Resource, body: dict[str, Any]) -> Reply:
    reply = await api.post(path(api, resource), body)
    assert reply.code == 201, reply.body
    return reply


def cluster_name(api: RawApi) -> str:
    """Cluster-scoped objects outlive a test on the real server."""
    return f"{api.namespace}:reader"


class TestRoles:
    async def test_role_is_stored_as_sent(self, api: RawApi) -> None:
        created = await create(api, ROLES, role("system:reader"))
        assert created.body["rules"] == [READ_PODS]
        assert (created.body["kind"], created.body["apiVersion"]) == ("Role", f"{GROUP}/v1")
        assert created.metadata["managedFields"][0]["fieldsV1"] == {"f:rules": {}}
        assert (await api.get(path(api, ROLES, "system:reader"))).body == created.body
        listed = await api.get(path(api, ROLES))
        assert (listed.body["kind"], len(listed.body["items"])) == ("RoleList", 1)

    async def test_role_without_rules_has_null(self, api: RawApi) -> None:
        created = await create(api, ROLES, {"metadata": {"name": "r"}})
        assert created.body["rules"] is None
        assert "managedFields" not in created.metadata
        await api.patch(path(api, ROLES, "r"), {"rules": [READ_PODS]})
        cleared = await api.patch(path(api, ROLES, "r"), {"rules": None})
        assert (cleared.code, cleared.body["rules"]) == (200, None)

    async def test_incomplete_rules_are_rejected(self, api: RawApi) -> None:
        urls = {"verbs": ["get"], "nonResourceURLs": ["/x"], "resources": ["pods"]}
        reply = await api.post(path(api, ROLES), role("r", {}, urls, {"apiGroups": [""], "resources": ["pods"]}))
        assert reply.message == (
            f'Role.{GROUP} "r" is invalid: [rules[0].verbs: Required value: verbs must contain at least one value, '
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group, "
            "rules[0].resources: Required value: resource rules must supply at least one resource, "
            'rules[1].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to non-resource URLs, '
            'rules[1].nonResourceURLs: Invalid value: ["/x"]: rules cannot apply to both regular resources and '
            "non-resource URLs, rules[2].verbs: Required value: verbs must contain at least one value]"
        )
        assert reply.body["details"]["group"] == GROUP

    async def test_rule_of_another_type_is_rejected(self, api: RawApi) -> None:
        reply = await api.post(path(api, ROLES), role("r", {"verbs": "get"}))
        assert reply.code == 400
        assert reply.message == (
            'Role in version "v1" cannot be handled as a Role: json: cannot unmarshal string into Go struct field '
            "PolicyRule.rules.verbs of type []string"
        )

    async def test_names_are_segments_of_a_path(self, api: RawApi) -> None:
        for name, problem in (
            ("a/b", "may not contain '/'"),
            ("a%b", "may not contain '%'"),
            ("..", "may not be '..'"),
        ):
            reply = await api.post(path(api, ROLES), role(name))
            assert (
                reply.message == f'Role.{GROUP} "{name}" is invalid: metadata.name: Invalid value: "{name}": {problem}'
            )

    async def test_cluster_role_may_have_urls_and_aggregation(self, api: RawApi) -> None:
        name = cluster_name(api)
        created = await create(api, CLUSTER_ROLES, role(name, {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}))
        assert created.body["rules"] == [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]
        selectors = [{"matchLabels": {"a": "b"}}]
        aggregated = await api.patch(
            path(api, CLUSTER_ROLES, name), {"aggregationRule": {"clusterRoleSelectors": selectors}}
        )
        assert aggregated.body["aggregationRule"] == {"clusterRoleSelectors": selectors}
        empty = await api.post(path(api, CLUSTER_ROLES), {"metadata": {"name": f"{name}2"}, "aggregationRule": {}})
        assert empty.message == (
            f'ClusterRole.{GROUP} "{name}2" is invalid: aggregationRule.clusterRoleSelectors: Required value: '
            "at least one clusterRoleSelector required if aggregationRule is non-nil"
        )
        deleted = await api.delete(path(api, CLUSTER_ROLES, name))
        assert deleted.body["details"] == {
            "name": name,
            "group": GROUP,
            "kind": "clusterroles",
            "uid": created.metadata["uid"],
        }


class TestBindings:
    async def test_api_groups_are_defaulted(self, api: RawApi) -> None:
        subjects = [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s"}]
        created = await create(api, ROLE_BINDINGS, binding("b", *subjects, {"kind": "Group", "name": "g"}))
        assert created.body["roleRef"] == {"apiGroup": GROUP, "kind": "Role", "name": "r"}
        assert created.body["subjects"] == [
            {"kind": "User", "apiGroup": GROUP, "name": "u"},
            {"kind": "ServiceAccount", "name": "s"},
            {"kind": "Group", "apiGroup": GROUP, "name": "g"},
        ]
        assert created.metadata["managedFields"][0]["fieldsV1"] == {"f:roleRef": {}, "f:subjects": {}}

    async def test_role_ref_is_required(self, api: RawApi) -> None:
        reply = await api.post(path(api, ROLE_BINDINGS), {"metadata": {"name": "b"}})
        assert reply.message == (
            f'RoleBinding.{GROUP} "b" is invalid: [roleRef.kind: Unsupported value: "": '
            'supported values: "Role", "ClusterRole", roleRef.name: Required value]'
        )

    async def test_role_ref_and_subjects_are_checked(self, api: RawApi) -> None:
        subjects: list[dict[str, Any]] = [
            {},
            {"kind": "User"},
            {"kind": "ServiceAccount", "name": "s", "apiGroup": "x"},
            {"kind": "Group", "name": "g", "apiGroup": "y"},
        ]
        wrong = {"kind": "X", "name": "a/b", "apiGroup": "q"}
        reply = await api.post(path(api, ROLE_BINDINGS), binding("b", *subjects) | {"roleRef": wrong})
        assert reply.message == (
            f'RoleBinding.{GROUP} "b" is invalid: ['
            f'roleRef.apiGroup: Unsupported value: "q": supported values: "{GROUP}", '
            'roleRef.kind: Unsupported value: "X": supported values: "Role", "ClusterRole", '
            "roleRef.name: Invalid value: \"a/b\": may not contain '/', "
            "subjects[0].name: Required value, "
            'subjects[0].kind: Unsupported value: "": supported values: "ServiceAccount", "User", "Group", '
            "subjects[1].name: Required value, "
            'subjects[2].apiGroup: Unsupported value: "x": supported values: "", '
            f'subjects[3].apiGroup: Unsupported value: "y": supported values: "{GROUP}"]'
        )
        account = await api.post(path(api, ROLE_BINDINGS), binding("b", {"kind": "ServiceAccount", "name": "A_"}))
        assert 'subjects[0].name: Invalid value: "A_": a lowercase RFC 1123 subdomain must consist' in account.message

    async def test_role_ref_is_immutable(self, api: RawApi) -> None:
        await create(api, ROLE_BINDINGS, binding())
        reply = await api.patch(path(api, ROLE_BINDINGS, "b"), {"roleRef": {"name": "other"}})
        assert reply.code == 422
        assert reply.message == (
            f'RoleBinding.{GROUP} "b" is invalid: roleRef: Invalid value: '
            f'{{"APIGroup":"{GROUP}","Kind":"Role","Name":"other"}}: cannot change roleRef'
        )

    async def test_strategic_merge_replaces_subjects(self, api: RawApi) -> None:
        await create(api, ROLE_BINDINGS, binding("b", {"kind": "User", "name": "u"}))
        patch = {"subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": "n"}]}
        reply = await api.patch(path(api, ROLE_BINDINGS, "b"), patch, STRATEGIC)
        assert (reply.code, reply.body["subjects"]) == (200, patch["subjects"])

    async def test_cluster_role_binding_names_a_cluster_role_and_namespaces(self, api: RawApi) -> None:
        name = cluster_name(api)
        wrong = await api.post(path(api, CLUSTER_ROLE_BINDINGS), binding(name, {"kind": "ServiceAccount", "name": "s"}))
        assert wrong.message == (
            f'ClusterRoleBinding.{GROUP} "{name}" is invalid: [roleRef.kind: Unsupported value: "Role": '
            'supported values: "ClusterRole", subjects[0].namespace: Required value]'
        )
        account = {"kind": "ServiceAccount", "name": "s", "namespace": "n"}
        created = await create(api, CLUSTER_ROLE_BINDINGS, binding(name, account, kind="ClusterRole"))
        assert created.body["subjects"] == [account]
        assert (await api.delete(path(api, CLUSTER_ROLE_BINDINGS, name))).code == 200


async def test_server_side_apply_owns_rules_as_a_whole(api: RawApi) -> None:
    def applied(verb: str) -> dict[str, Any]:
        rule = {"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}
        return {"apiVersion": f"{GROUP}/v1", "kind": "Role"} | role("r", rule)

    created = await api.patch(f"{path(api, ROLES, 'r')}?fieldManager=m", applied("get"), APPLY)
    assert created.code == 201
    assert created.metadata["managedFields"][0]["fieldsV1"] == {"f:rules": {}}
    conflict = await api.patch(f"{path(api, ROLES, 'r')}?fieldManager=n", applied("list"), APPLY)
    assert (conflict.code, conflict.message) == (409, 'Apply failed with 1 conflict: conflict with "m": .rules')
    changed = await api.patch(f"{path(api, ROLES, 'r')}?fieldManager=m", applied("list"), APPLY)
    assert changed.body["rules"][0]["verbs"] == ["list"]


async def test_columns(api: RawApi) -> None:
    subjects = [{"kind": "User", "name": "u"}, {"kind": "User", "name": "v"}, {"kind": "Group", "name": "g"}]
    account = {"kind": "ServiceAccount", "name": "s", "namespace": "n"}
    created = await create(api, ROLES, role())
    await create(api, ROLE_BINDINGS, binding("b", *subjects, account))

    roles = (await api.get(path(api, ROLES), TABLE)).body
    assert [(one["name"], one["type"]) for one in roles["columnDefinitions"]] == [
        ("Name", "string"),
        ("Created At", "date"),
    ]
    assert roles["rows"][0]["cells"] == ["r", created.metadata["creationTimestamp"]]
    bindings = (await api.get(path(api, ROLE_BINDINGS), TABLE)).body
    assert [(one["name"], one["priority"]) for one in bindings["columnDefinitions"]] == [
        ("Name", 0), ("Role", 0), ("Age", 0), ("Users", 1), ("Groups", 1), ("ServiceAccounts", 1),
    ]  # fmt: skip
    cells = bindings["rows"][0]["cells"]
    assert cells[:2] + cells[3:] == ["b", "Role/r", "u, v", "g", "n/s"]


async def test_discovery_and_openapi(api: RawApi) -> None:
    listed = (await api.get(f"/apis/{GROUP}/v1")).body["resources"]
    assert [(one["name"], one["singularName"], one["kind"], one["namespaced"]) for one in listed] == [
        ("clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding", False),
        ("clusterroles", "clusterrole", "ClusterRole", False),
        ("rolebindings", "rolebinding", "RoleBinding", True),
        ("roles", "role", "Role", True),
    ]
    assert all("shortNames" not in one and "categories" not in one for one in listed)
    document = (await api.get(f"/openapi/v3/apis/{GROUP}/v1")).body
    kinds = {
        gvk["kind"]
        for schema in document["components"]["schemas"].values()
        for gvk in schema.get("x-kubernetes-group-version-kind", ())
        if gvk["group"] == GROUP
    }
    assert {"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} <= kinds


async def test_unknown_fields_are_rejected_by_strict_validation(api: RawApi) -> None:
    reply = await api.post(f"{path(api, ROLES)}?fieldValidation=Strict", role("r", READ_PODS | {"verb": "get"}))
    assert reply.code == 400
    assert reply.message == (
        'Role in version "v1" cannot be handled as a Role: strict decoding error: unknown field "rules[0].verb"'
    )
