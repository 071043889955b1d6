"""Authentication, RBAC, impersonation and reviews.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

from typing import Any

import pytest

from tests.support.cluster.api_users import ApiUser, account_token, bearer, grant, new_account, user
from tests.support.cluster.raw_api import APPLY, RawApi
from tests.support.waiting import eventually
from trainwright.objects.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, ROLE_BINDINGS, ROLES

GROUP = "rbac.authorization.k8s.io"
READ_PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


class TestAuthentication:
    async def test_unknown_token_is_unauthorized(self, api: RawApi) -> None:
        for path in ("/api/v1/namespaces", "/healthz"):
            reply = await bearer(api, "wrong").get(path)
            assert (reply.code, reply.body["reason"], reply.message) == (401, "Unauthorized", "Unauthorized")

    async def test_anonymous_reads_health_and_version_alone(self, api: RawApi) -> None:
        anonymous = ApiUser(api, {"Authorization": ""})
        for path in ("/healthz", "/livez", "/readyz"):
            reply = await anonymous.get(path)
            assert (reply.code, reply.body) == (200, "ok")
        for path in ("/version", "/version/"):
            reply = await anonymous.get(path)
            assert (reply.code, reply.body["major"]) == (200, "1")
        refused = await anonymous.get(api.path("pods"))
        assert refused.code == 403
        assert refused.message == (
            'pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" '
            f'in the namespace "{api.namespace}"'
        )
        refused = await anonymous.get("/")
        assert refused.message == 'forbidden: User "system:anonymous" cannot get path "/"'
        assert refused.body["details"] == {}

    async def test_user_reads_discovery_but_no_objects(self, api: RawApi) -> None:
        for path in ("/api", "/apis", "/api/v1", "/openapi/v3", "/version", "/healthz"):
            assert (await user(api).get(path)).code == 200
        assert (await user(api).get("/api/v1/namespaces")).code == 403

    async def test_review_shows_the_sender(self, api: RawApi) -> None:
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        headers = {"Impersonate-User": "ann", "Impersonate-Uid": "7", "Impersonate-Extra-Scopes": "view"}
        reply = await ApiUser(api, headers).post(path, {})
        assert reply.code == 201
        assert reply.body["status"]["userInfo"] == {
            "username": "ann", "uid": "7", "groups": ["system:authenticated"], "extra": {"scopes": ["view"]},
        }  # fmt: skip


class TestForbidden:
    @pytest.mark.parametrize(
        ("method", "path", "message"),
        [
            ("GET", "/api/v1/nodes", 'nodes is forbidden: User "ann" cannot list resource "nodes" in API group "" {}'),
            ("GET", "/api/v1/nodes/n",
             'nodes "n" is forbidden: User "ann" cannot get resource "nodes" in API group "" {}'),
            ("GET", "/api/v1/namespaces/a/pods/p/log",
             'pods "p" is forbidden: User "ann" cannot get resource "pods/log" in API group "" {in a}'),
            ("GET", "/apis/batch/v1/namespaces/a/jobs?watch=true",
             'jobs.batch is forbidden: User "ann" cannot watch resource "jobs" in API group "batch" {in a}'),
            ("DELETE", "/api/v1/namespaces/a/pods",
             'pods is forbidden: User "ann" cannot deletecollection resource "pods" in API group "" {in a}'),
            ("DELETE", "/api/v1/namespaces/a",
             'namespaces "a" is forbidden: User "ann" cannot delete resource "namespaces" in API group "" {in a}'),
            ("GET", "/apis/example.com/v1/things",
             'things.example.com is forbidden: User "ann" cannot list resource "things" in API group "example.com" {}'),
            ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp",
             'pods "p" is forbidden: User "ann" cannot list resource "pods" in API group "" {}'),
            ("GET", "/metrics", 'forbidden: User "ann" cannot get path "/metrics"'),
            ("POST", "/<foo>", 'forbidden: User "ann" cannot post path "/&lt;foo&gt;"'),
        ],
    )  # fmt: skip
    async def test_message_names_user_verb_and_resource(
        self, api: RawApi, method: str, path: str, message: str
    ) -> None:
        reply = await user(api).send(method, path)
        expected = message.replace("{}", "at the cluster scope").replace("{in a}", 'in the namespace "a"')
        assert (reply.code, reply.body["reason"], reply.message) == (403, "Forbidden", expected)

    async def test_missing_role_of_a_binding_is_named(self, api: RawApi) -> None:
        binding = {
            "metadata": {"name": "dangling"},
            "roleRef": {"kind": "ClusterRole", "name": "no-such-role"},
            "subjects": [{"kind": "User", "name": "dora"}],
        }
        assert (await api.post(ROLE_BINDINGS.path(api.namespace), binding)).code == 201
        reply = await eventually(
            lambda: user(api, "dora").get(api.path("pods")), lambda one: "no-such-role" in one.message
        )
        assert reply.message.endswith(
            f'in the namespace "{api.namespace}": RBAC: clusterrole.{GROUP} "no-such-role" not found'
        )


class TestRoles:
    async def test_role_allows_its_verbs_in_its_namespace(self, api: RawApi) -> None:
        await grant(api, READ_PODS)
        ann = user(api)
        assert (await ann.get(api.path("pods"))).code == 200
        assert (await ann.get("/api/v1/namespaces/kube-system/pods")).code == 403
        assert (await ann.get("/api/v1/pods")).code == 403
        assert (await ann.send("DELETE", api.path("pods", "p"))).code == 403
        assert (await ann.get(api.path("pods", "p", "log"))).code == 403
        assert (await ann.get(api.path("pods", "p"))).code == 404

    async def test_subresources_and_wildcards(self, api: RawApi) -> None:
        await grant(api, {"apiGroups": ["*"], "resources": ["configmaps", "*/log"], "verbs": ["*"]})
        ann = user(api)
        assert (await ann.get(api.path("pods", "p", "log"))).code == 404
        assert (await ann.get(api.path("pods", "p"))).code == 403
        assert (await ann.post(api.path("configmaps"), {"metadata": {"name": "c"}})).code == 201

    async def test_resource_names_limit_a_rule(self, api: RawApi) -> None:
        await grant(api, {"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"], "resourceNames": ["mine"]})
        ann = user(api)
        assert (await ann.get(api.path("secrets", "mine"))).code == 404
        assert (await ann.get(api.path("secrets", "other"))).code == 403
        assert (await ann.get(api.path("secrets"))).code == 403
        assert (await ann.get(api.path("secrets") + "?fieldSelector=metadata.name%3Dmine")).code == 200
        assert (await ann.post(api.path("secrets"), {"metadata": {"name": "mine"}})).code == 403

    async def test_service_accounts_are_subjects(self, api: RawApi) -> None:
        await new_account(api)
        await grant(api, READ_PODS, name="robot", subject={"kind": "ServiceAccount", "name": "robot"})
        robot = bearer(api, await account_token(api))
        assert (await robot.get(api.path("pods"))).code == 200
        refused = await robot.get(api.path("secrets"))
        assert f'User "system:serviceaccount:{api.namespace}:robot" cannot list' in refused.message

    async def test_exec_by_websocket_needs_create(self, api: RawApi) -> None:
        await grant(api, {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]})
        spec = {"containers": [{"name": "c", "image": "i"}]}
        assert (await api.post(api.path("pods"), {"metadata": {"name": "p"}, "spec": spec})).code == 201
        refused = await user(api).get(api.path("pods", "p", "exec") + "?command=true&stdout=true")
        assert refused.code == 403
        assert refused.message.startswith('pods "p" is forbidden: ')  # the real server does not say why

    async def test_deleted_binding_takes_permissions_away(self, api: RawApi) -> None:
        await grant(api, READ_PODS)
        assert (await api.delete(ROLE_BINDINGS.path(api.namespace, "bound-ann"))).code == 200
        await eventually(lambda: user(api).get(api.path("pods")), lambda one: one.code == 403)

    async def test_cluster_role_allows_paths_and_all_namespaces(self, api: RawApi) -> None:
        name = f"{api.namespace}-auditor"
        rules = [{"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]}, READ_PODS]
        assert (await api.post(CLUSTER_ROLES.path(), {"metadata": {"name": name}, "rules": rules})).code == 201
        binding = {
            "metadata": {"name": name},
            "roleRef": {"kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "User", "name": name}],
        }
        assert (await api.post(CLUSTER_ROLE_BINDINGS.path(), binding)).code == 201
        auditor = user(api, name)
        await eventually(lambda: auditor.get("/api/v1/pods"), lambda one: one.code == 200)
        assert (await auditor.get("/logs/x")).code == 404
        assert (await auditor.send("POST", "/logs/x")).code == 403
        assert (await auditor.get("/logs")).code == 403

    async def test_apply_that_creates_needs_create(self, api: RawApi) -> None:
        await grant(api, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]})
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
        path = api.path("configmaps", "c") + "?fieldManager=m"
        reply = await user(api).send("PATCH", path, body, content_type=APPLY)
        assert reply.code == 403
        assert 'User "ann" cannot create resource "configmaps"' in reply.message


class TestDefaultRoles:
    @pytest.mark.parametrize("name", ["cluster-admin", "system:discovery", "system:basic-user", "view"])
    async def test_default_roles_exist(self, api: RawApi, name: str) -> None:
        reply = await api.get(CLUSTER_ROLES.path(name=name))
        assert reply.code == 200
        assert reply.metadata["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
        assert reply.metadata["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] == "true"

    async def test_administrator_has_all_permissions_listed(self, api: RawApi) -> None:
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        status = (await api.post(path, {"spec": {"namespace": api.namespace}})).body["status"]
        everything = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        assert everything in status["resourceRules"]
        assert {"verbs": ["*"], "nonResourceURLs": ["*"]} in status["nonResourceRules"]
        assert status["incomplete"] is False


class TestEscalation:
    """ann may write roles and bindings, and read pods; so she can give others no more than that."""

    async def ann(self, api: RawApi, *more: dict[str, Any]) -> ApiUser:
        write = {"apiGroups": [GROUP], "resources": ["roles", "rolebindings"], "verbs": ["create", "update", "patch"]}
        await grant(api, write, READ_PODS, *more)
        return user(api)

    async def test_role_with_own_permissions_is_allowed(self, api: RawApi) -> None:
        ann = await self.ann(api)
        reply = await ann.post(ROLES.path(api.namespace), {"metadata": {"name": "r"}, "rules": [READ_PODS]})
        assert reply.code == 201

    async def test_role_with_more_permissions_is_refused(self, api: RawApi) -> None:
        ann = await self.ann(api)
        rules = [
            {"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get", "delete"]},
            {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["*"], "resourceNames": ["a", "b"]},
        ]
        body = {"metadata": {"name": "r"}, "rules": rules}
        reply = await ann.post(ROLES.path(api.namespace), body)
        assert (reply.code, reply.body["reason"]) == (403, "Forbidden")
        assert reply.message == (
            f'roles.{GROUP} "r" is forbidden: user "ann" (groups=["system:authenticated"]) is attempting to grant RBAC '
            "permissions not currently held:\n"
            '{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}\n'
            '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "delete"]}\n'
            '{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["a"], Verbs:["*"]}\n'
            '{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["b"], Verbs:["*"]}'
        )
        assert reply.body["details"] == {"name": "r", "group": GROUP, "kind": "roles"}

    async def test_update_and_apply_are_checked_too(self, api: RawApi) -> None:
        ann = await self.ann(api)
        path = ROLES.path(api.namespace, "r")
        assert (
            await api.post(ROLES.path(api.namespace), {"metadata": {"name": "r"}, "rules": [READ_PODS]})
        ).code == 201
        secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
        merge = "application/merge-patch+json"
        assert (await ann.send("PATCH", path, {"rules": [secrets]}, content_type=merge)).code == 403
        applied = {"apiVersion": f"{GROUP}/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": [secrets]}
        apply_path = f"{path}?fieldManager=m&force=true"
        assert (await ann.send("PATCH", apply_path, applied, content_type=APPLY)).code == 403
        assert (await ann.send("PATCH", path, {"rules": []}, content_type=merge)).code == 200

    async def test_verb_escalate_allows_it(self, api: RawApi) -> None:
        ann = await self.ann(api, {"apiGroups": [GROUP], "resources": ["roles"], "verbs": ["escalate"]})
        secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
        reply = await ann.post(ROLES.path(api.namespace), {"metadata": {"name": "r"}, "rules": [secrets]})
        assert reply.code == 201

    async def test_binding_of_a_stronger_role_is_refused(self, api: RawApi) -> None:
        ann = await self.ann(api)
        body = {"metadata": {"name": "b"}, "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}}
        reply = await ann.post(ROLE_BINDINGS.path(api.namespace), body)
        assert reply.code == 403
        assert reply.message == (
            f'rolebindings.{GROUP} "b" is forbidden: user "ann" (groups=["system:authenticated"]) is attempting to '
            "grant RBAC permissions not currently held:\n"
            '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}\n{NonResourceURLs:["*"], Verbs:["*"]}'
        )

    async def test_binding_of_a_missing_role_is_not_found(self, api: RawApi) -> None:
        ann = await self.ann(api)
        body = {"metadata": {"name": "b"}, "roleRef": {"kind": "Role", "name": "nothing"}}
        reply = await ann.post(ROLE_BINDINGS.path(api.namespace), body)
        assert (reply.code, reply.message) == (404, f'rolebindings.{GROUP} "nothing" not found')

    async def test_verb_bind_allows_the_named_role(self, api: RawApi) -> None:
        bind = {"apiGroups": [GROUP], "resources": ["clusterroles"], "verbs": ["bind"], "resourceNames": ["edit"]}
        ann = await self.ann(api, bind)
        for role, code in (("edit", 201), ("cluster-admin", 403)):
            body = {"metadata": {"name": role}, "roleRef": {"kind": "ClusterRole", "name": role}}
            assert (await ann.post(ROLE_BINDINGS.path(api.namespace), body)).code == code


class TestImpersonation:
    async def test_user_needs_the_verb_impersonate(self, api: RawApi) -> None:
        await new_account(api)
        robot = await account_token(api)
        headers = {"Authorization": f"Bearer {robot}", "Impersonate-User": "ann"}
        reply = await ApiUser(api, headers).get("/version")
        assert reply.code == 403
        assert reply.message == (
            f'users "ann" is forbidden: User "system:serviceaccount:{api.namespace}:robot" cannot impersonate resource '
            '"users" in API group "" at the cluster scope'
        )
        headers["Impersonate-User"] = f"system:serviceaccount:{api.namespace}:default"
        reply = await ApiUser(api, headers).get("/version")
        assert 'cannot impersonate resource "serviceaccounts" in API group "" in the namespace' in reply.message

    async def test_group_without_user_is_a_bad_request(self, api: RawApi) -> None:
        reply = await ApiUser(api, {"Impersonate-Group": "team"}).get("/version")
        assert reply.code == 400
        assert reply.message == "requested [{Group  team    }] without impersonating a user"
        reply = await ApiUser(api, {"Impersonate-Uid": "7"}).get("/version")
        assert reply.message == "requested [{UID  7  authentication.k8s.io/v1  }] without impersonating a user"

    async def test_impersonated_service_account_has_its_groups(self, api: RawApi) -> None:
        name = f"system:serviceaccount:{api.namespace}:default"
        reply = await user(api, name).post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
        assert reply.body["status"]["userInfo"]["groups"] == [
            "system:serviceaccounts", f"system:serviceaccounts:{api.namespace}", "system:authenticated",
        ]  # fmt: skip

    async def test_impersonated_group_has_its_permissions(self, api: RawApi) -> None:
        assert (await user(api, "ann", "system:masters").get("/api/v1/nodes")).code == 200


class TestReviews:
    async def test_access_review_of_another_user(self, api: RawApi) -> None:
        await grant(api, READ_PODS)
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        wanted = {"namespace": api.namespace, "verb": "get", "resource": "pods"}
        reply = await api.post(path, {"spec": {"user": "ann", "resourceAttributes": wanted}})
        assert reply.body["status"] == {
            "allowed": True,
            "reason": f'RBAC: allowed by RoleBinding "bound-ann/{api.namespace}" of Role "role-ann" to User "ann"',
        }
        reply = await api.post(path, {"spec": {"user": "bob", "resourceAttributes": wanted}})
        assert reply.body["status"] == {"allowed": False}
        health = {"path": "/healthz", "verb": "get"}
        groups = ["system:authenticated"]
        reply = await api.post(path, {"spec": {"groups": groups, "nonResourceAttributes": health}})
        assert reply.body["status"]["allowed"] is True

    async def test_local_review_stays_in_its_namespace(self, api: RawApi) -> None:
        path = api.path("localsubjectaccessreviews", group="apis/authorization.k8s.io/v1")
        wanted = {"namespace": "other", "verb": "get", "resource": "pods"}
        body = {"metadata": {"namespace": api.namespace}, "spec": {"user": "ann", "resourceAttributes": wanted}}
        reply = await api.post(path, body)
        assert reply.code == 422
        assert (
            'spec.resourceAttributes.namespace: Invalid value: "other": must match metadata.namespace' in reply.message
        )
        body["spec"]["resourceAttributes"] = {**wanted, "namespace": api.namespace}  # type: ignore[index]
        assert (await api.post(path, body)).body["status"] == {"allowed": False}

    async def test_incomplete_review_is_refused(self, api: RawApi) -> None:
        path = "/apis/authorization.k8s.io/v1/"
        reply = await api.post(path + "selfsubjectaccessreviews", {"spec": {}})
        assert reply.code == 422
        assert reply.message == (
            '.authorization.k8s.io "" is invalid: spec.resourceAttributes: Invalid value: null: '
            "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        )
        reply = await api.post(path + "selfsubjectrulesreviews", {"spec": {}})
        assert (reply.code, reply.message) == (400, "no namespace on request")
        reply = await api.post("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {}})
        assert (reply.code, reply.message) == (400, "token is required for TokenReview in authentication")

    async def test_token_review(self, api: RawApi) -> None:
        metadata = await new_account(api)
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        status = (await api.post(path, {"spec": {"token": await account_token(api)}})).body["status"]
        assert status["authenticated"] is True
        found = status["user"]
        assert (found["username"], found["uid"]) == (f"system:serviceaccount:{api.namespace}:robot", metadata["uid"])
        status = (await api.post(path, {"spec": {"token": "wrong"}})).body["status"]
        assert (status.get("authenticated"), status["error"]) == (None, "invalid bearer token")

    async def test_rules_review_lists_what_a_user_may_do(self, api: RawApi) -> None:
        await grant(api, READ_PODS)
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        status = (await user(api).post(path, {"spec": {"namespace": api.namespace}})).body["status"]
        assert {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]} in status["resourceRules"]
        assert any("/healthz" in rule["nonResourceURLs"] for rule in status["nonResourceRules"])
