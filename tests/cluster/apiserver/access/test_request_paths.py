"""A request is authorized for what it does: odd paths, queries and bodies give no access to anything else.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

from typing import Any

import pytest

from tests.support.cluster.api_users import ApiUser, grant, user
from tests.support.cluster.raw_api import RawApi
from tests.support.objects.manifests import config_map, deployment, pod
from tests.support.waiting import eventually
from trainwright.objects.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, DEPLOYMENTS, NAMESPACES, SECRETS

REVIEWS = "/apis/authorization.k8s.io/v1"


@pytest.fixture
async def viewer(api: RawApi) -> ApiUser:
    """A user with the permissions of the role `view` in all namespaces."""
    name = f"viewer-{api.namespace}"
    body = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": CLUSTER_ROLES.group, "kind": "ClusterRole", "name": "system:aggregate-to-view"},
        "subjects": [{"kind": "User", "name": name, "apiGroup": CLUSTER_ROLES.group}],
    }
    assert (await api.post(CLUSTER_ROLE_BINDINGS.path(), body)).code == 201
    viewer = user(api, name)
    await eventually(lambda: viewer.is_allowed("list", "services"), bool)
    return viewer


class TestPaths:
    async def test_viewer_reads_no_secrets_by_an_empty_namespace(self, api: RawApi, viewer: ApiUser) -> None:
        await api.post(NAMESPACES.path(), {"metadata": {"name": "services"}})  # it may exist on the real server
        secret = {"metadata": {"name": f"secret-{api.namespace}"}}
        assert (await api.post(SECRETS.path("services"), secret)).code == 201
        assert (await viewer.get("/api/v1/namespaces/services/secrets")).code == 403
        reply = await viewer.send("GET", "/api/v1/namespaces//services/secrets", escaped=True)
        assert (reply.code, reply.message) == (400, "Namespace parameter required.")

    @pytest.mark.parametrize(
        "path",
        [
            "//api/v1/namespaces/{}/secrets",
            "/api//v1/namespaces/{}/secrets",
            "/api/v1//namespaces/{}/secrets",
            "/api/v1/namespaces/{}//secrets",
            "/api/v1/namespaces/{}/services/../secrets",
            "/api/v1/namespaces/{}/services/%2e%2e/secrets",
            "/api/v1/namespaces/{}/./secrets",
            "/api/v1/namespaces/{}/secrets;a=b",
            "/api/v1/namespaces/{}/SECRETS",
            "/apis//v1/namespaces/{}/secrets",
        ],
    )
    async def test_path_that_is_not_canonical_is_not_found(self, api: RawApi, path: str) -> None:
        assert (await api.send("GET", path.format(api.namespace), escaped=True)).code == 404

    @pytest.mark.parametrize("path", ["/api/v1/namespaces/{}%2Fsecrets", "/api/v1/%6eamespaces/{}/secrets//"])
    async def test_escapes_and_slashes_at_the_end_do_not_matter(self, api: RawApi, viewer: ApiUser, path: str) -> None:
        path = path.format(api.namespace)
        assert (await api.send("GET", path, escaped=True)).body["kind"] == "SecretList"
        assert (await viewer.send("GET", path, escaped=True)).code == 403

    @pytest.mark.parametrize(("name", "problem"), [("..", "be '..'"), ("a%25b", "contain '%'")])
    async def test_name_that_is_no_segment_of_a_path(self, api: RawApi, name: str, problem: str) -> None:
        reply = await api.send("GET", api.path("configmaps", name), escaped=True)
        assert reply.code == 400
        assert reply.message.startswith("Name parameter invalid: ")
        assert reply.message.endswith(f"may not {problem}")

    @pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
    async def test_empty_name_of_a_subresource_means_no_object(self, api: RawApi, method: str) -> None:
        await api.post(api.path("pods"), pod("status"))
        reply = await api.send(method, api.path("pods", "", "status"), pod("status"), escaped=True)
        assert reply.code == (405 if method == "DELETE" else 400)
        assert (await api.get(api.path("pods", "status"))).code == 200

    async def test_malformed_escape_is_refused(self, api: RawApi) -> None:
        assert (await api.send("GET", "/api/v1/%zz", escaped=True)).code == 400

    @pytest.mark.parametrize("method", ["POST", "DELETE"])
    async def test_no_write_concerns_all_namespaces(self, api: RawApi, method: str) -> None:
        assert (await api.send(method, "/api/v1/configmaps", config_map())).code == 405

    async def test_deprecated_watch_of_one_object(self, api: RawApi) -> None:
        for name in ("a", "b"):
            await api.post(api.path("configmaps"), config_map(name))
        path = f"/api/v1/watch/namespaces/{api.namespace}/configmaps/b?timeoutSeconds=1"
        assert [event["object"]["metadata"]["name"] async for event in api.watch(path)] == ["b"]


class TestQueries:
    @pytest.mark.parametrize("query", ["watch", "watch=", "watch=yes", "watch=1&watch=0"])
    async def test_watch_needs_the_permission_to_watch(self, api: RawApi, query: str) -> None:
        await grant(api, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}, name="lister")
        await grant(api, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}, name="watcher")
        path = f"{api.path('configmaps')}?timeoutSeconds=1&{query}"
        assert (await user(api, "lister").get(path)).code == 403
        watched = await user(api, "watcher").get(path)
        assert watched.code == 200
        assert "List" not in str(watched.body)

    @pytest.mark.parametrize("query", ["watch=0", "watch=False", "watch=0&watch=1"])
    async def test_list_needs_the_permission_to_list(self, api: RawApi, query: str) -> None:
        await grant(api, {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["watch"]}, name="watcher")
        assert (await user(api, "watcher").get(f"{api.path('configmaps')}?{query}")).code == 403

    @pytest.mark.parametrize("query", ["dryRun=", "dryRun=&dryRun=All", "dryRun=All&dryRun="])
    async def test_every_value_of_dry_run_counts(self, api: RawApi, query: str) -> None:
        await api.post(api.path("configmaps"), config_map())
        created = await api.post(f"{api.path('configmaps')}?{query}", config_map("new"))
        deleted = await api.delete(f"{api.path('configmaps', 'c')}?{query}")
        assert (created.code, deleted.code) == (422, 422)
        assert (await api.get(api.path("configmaps", "new"))).code == 404
        assert (await api.get(api.path("configmaps", "c"))).code == 200


class TestBodies:
    """The path names the object; a body that names another one is refused."""

    @pytest.mark.parametrize("subresource", ["binding", "eviction"])
    @pytest.mark.parametrize("metadata", [{}, {"name": "other"}, {"name": "p", "namespace": "kube-system"}])
    async def test_of_pods(self, api: RawApi, subresource: str, metadata: dict[str, Any]) -> None:
        await api.post(api.path("pods"), pod())
        body = {"metadata": metadata, "target": {"name": "n1"}}
        assert (await api.post(api.path("pods", "p", subresource), body)).code == 400
        found = (await api.get(api.path("pods", "p"))).body
        assert "nodeName" not in found["spec"]

    @pytest.mark.parametrize(
        "change",
        [
            {"metadata": {}},
            {"metadata": {"name": "other"}},
            {"metadata": {"name": "web", "namespace": "kube-system"}},
            {"kind": "Deployment", "apiVersion": "apps/v1"},
            {"apiVersion": "v1"},
        ],
    )
    async def test_of_a_scale(self, api: RawApi, change: dict[str, Any]) -> None:
        await api.post(DEPLOYMENTS.path(api.namespace), deployment())
        scale = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "web"}, "spec": {"replicas": 5}}
        path = DEPLOYMENTS.path(api.namespace, "web", "scale")
        assert (await api.put(path, scale | change)).code == 400
        assert (await api.get(path)).body["spec"] == {"replicas": 2}

    @pytest.mark.parametrize("change", [{"name": "other"}, {"namespace": "kube-system"}])
    async def test_of_a_patch(self, api: RawApi, change: dict[str, str]) -> None:
        await api.post(api.path("configmaps"), config_map())
        assert (await api.patch(api.path("configmaps", "c"), {"metadata": change})).code == 400

    async def test_of_an_update_needs_the_name(self, api: RawApi) -> None:
        await api.post(api.path("configmaps"), config_map())
        reply = await api.put(api.path("configmaps", "c"), {"data": {"a": "b"}})
        why = "the name of the object (c based on URL) was undeterminable: name must be provided"
        assert (reply.code, reply.message) == (400, why)

    async def test_of_a_token_request(self, api: RawApi) -> None:
        path = api.path("serviceaccounts", "default", "token")
        for body in (
            {"kind": "Pod", "apiVersion": "v1"},
            {"kind": "TokenRequest", "apiVersion": "v1"},
            {"metadata": {"namespace": "kube-system"}},
        ):
            assert (await api.post(path, {"spec": {}, **body})).code == 400

    async def test_of_a_review(self, api: RawApi) -> None:
        attributes = {"resourceAttributes": {"verb": "get", "resource": "pods"}, "user": "ann"}
        review = {"kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": attributes}
        assert (await api.post(f"{REVIEWS}/selfsubjectaccessreviews", review)).code == 400

    async def test_local_review_answers_for_its_namespace_alone(self, api: RawApi) -> None:
        attributes = {"verb": "get", "resource": "pods", "namespace": "kube-system"}
        body = {"metadata": {"namespace": "kube-system"}, "spec": {"user": "ann", "resourceAttributes": attributes}}
        path = f"{REVIEWS}/namespaces/{api.namespace}/localsubjectaccessreviews"
        assert (await api.post(path, body)).code == 400
