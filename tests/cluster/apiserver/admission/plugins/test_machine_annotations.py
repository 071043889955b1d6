"""Annotations that open this machine to pods are for its owner: a tenant of a namespace can write them nowhere."""

from typing import Any

import pytest

from tests.support.cluster.api_users import ApiUser, grant, user
from tests.support.cluster.raw_api import APPLY, MERGE, STRATEGIC, RawApi
from trainwright.objects.node_annotations import DIRECTORY, PYTHON

pytestmark = pytest.mark.parametrize("real_server", ["embedded"], indirect=True)

ALL = {"apiGroups": ["", "apps", "batch"], "resources": ["*"], "verbs": ["*"]}
OPEN = {"annotations": {DIRECTORY: "/root/.local/share/trainwright"}}
POD_SPEC = {"containers": [{"name": "c", "image": "i", "command": ["true"]}]}
TEMPLATE = {"metadata": {"labels": {"app": "a"}, **OPEN}, "spec": POD_SPEC}
JOB_TEMPLATE = {"metadata": OPEN, "spec": {**POD_SPEC, "restartPolicy": "Never"}}


def pod(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **metadata}, "spec": POD_SPEC}


@pytest.fixture
async def tenant(api: RawApi) -> ApiUser:
    await grant(api, ALL)
    return user(api)


@pytest.mark.parametrize(
    ("group", "plural", "body", "path"),
    [
        ("/api/v1", "pods", pod(**OPEN), "metadata.annotations"),
        ("/api/v1", "pods", pod(annotations={PYTHON: "/tmp/d/bin/python"}), "metadata.annotations"),
        ("/api/v1", "configmaps", {"metadata": {"name": "c", **OPEN}}, "metadata.annotations"),
        (
            "/apis/apps/v1",
            "deployments",
            {"metadata": {"name": "d"}, "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE}},
            "spec.template.metadata.annotations",
        ),
        (
            "/apis/batch/v1",
            "jobs",
            {"metadata": {"name": "j"}, "spec": {"template": JOB_TEMPLATE}},
            "spec.template.metadata.annotations",
        ),
        (
            "/apis/apps/v1",
            "controllerrevisions",
            {"metadata": {"name": "r"}, "revision": 1, "data": {"spec": {"template": TEMPLATE}}},
            "data.spec.template.metadata.annotations",
        ),
    ],
)
async def test_tenant_cannot_create_what_opens_the_machine(
    api: RawApi, tenant: ApiUser, group: str, plural: str, body: dict[str, Any], path: str
) -> None:
    where = f"{group}/namespaces/{api.namespace}/{plural}"
    refused = await tenant.post(where, body)
    assert refused.code == 403
    assert f"{path}[node.trainwright.dev/" in refused.message
    assert "which is for the machine's owner" in refused.message
    allowed = await api.post(where, body)
    assert allowed.code == 201, allowed.body


async def test_tenant_cannot_add_it_to_a_pod_in_any_way(api: RawApi, tenant: ApiUser) -> None:
    assert (await tenant.post(api.path("pods"), pod())).code == 201
    change = {"metadata": OPEN}
    for subresource in ("", "status"):
        where = api.path("pods", "p", subresource) if subresource else api.path("pods", "p")
        assert (await tenant.send("PATCH", where, change, content_type=MERGE)).code == 403
        current = (await api.get(api.path("pods", "p"))).body
        current["metadata"]["annotations"] = OPEN["annotations"]
        assert (await tenant.send("PUT", where, current)).code == 403
    applied = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", **OPEN}}
    where = api.path("pods", "p") + "?fieldManager=f&force=true"
    assert (await tenant.send("PATCH", where, applied, content_type=APPLY)).code == 403
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p", **OPEN}, "target": {"name": "local"}}
    assert (await tenant.post(api.path("pods", "p", "binding"), binding)).code == 403
    assert "annotations" not in (await api.get(api.path("pods", "p"))).metadata


async def test_tenant_cannot_apply_it_as_a_new_object(api: RawApi, tenant: ApiUser) -> None:
    where = api.path("pods", "p") + "?fieldManager=f"
    assert (await tenant.send("PATCH", where, pod(**OPEN), content_type=APPLY)).code == 403
    assert (await api.get(api.path("pods", "p"))).code == 404


async def test_tenant_cannot_change_what_the_owner_runs_with_it(api: RawApi, tenant: ApiUser) -> None:
    assert (await api.post(api.path("pods"), pod(**OPEN))).code == 201
    image = {"spec": {"containers": [{"name": "c", "image": "mine"}]}}
    refused = await tenant.send("PATCH", api.path("pods", "p"), image, content_type=STRATEGIC)
    assert (refused.code, "only they change what runs with it" in refused.message) == (403, True)
    labels = {"metadata": {"labels": {"seen": "yes"}}}
    assert (await tenant.send("PATCH", api.path("pods", "p"), labels, content_type=MERGE)).code == 200
    without = {"metadata": {"annotations": {DIRECTORY: None}}}
    assert (await tenant.send("PATCH", api.path("pods", "p"), without, content_type=MERGE)).code == 200


async def test_owner_can_let_others_use_the_machine(api: RawApi, tenant: ApiUser) -> None:
    group = "/apis/rbac.authorization.k8s.io/v1"
    rule = {"apiGroups": ["node.trainwright.dev"], "resources": ["machines"], "verbs": ["use"]}
    role = {"metadata": {"name": "users-of-machine"}, "rules": [rule]}
    subject = {"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "ann"}, "roleRef": {"kind": "ClusterRole", "name": "users-of-machine"}}
    await api.post(f"{group}/clusterroles", role)
    await api.post(f"{group}/namespaces/{api.namespace}/rolebindings", {**binding, "subjects": [subject]})
    assert (await tenant.post(api.path("pods"), pod(**OPEN))).code == 403, "a binding in a namespace is not enough"
    assert (await api.post(f"{group}/clusterrolebindings", {**binding, "subjects": [subject]})).code == 201
    assert (await tenant.post(api.path("pods"), pod(**OPEN))).code == 201
