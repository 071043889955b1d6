"""Reviews that are refused, and what their answers contain.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

from typing import Any

import pytest

from tests.support.cluster.api_users import user
from tests.support.cluster.raw_api import RawApi
from tests.support.waiting import eventually
from trainwright.objects.resources import ROLE_BINDINGS

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
PATH = {"path": "/healthz", "verb": "get"}
PODS = {"verb": "get", "resource": "pods"}


@pytest.mark.parametrize(
    ("kind", "spec", "problem"),
    [
        ("self", {"resourceAttributes": PODS, "nonResourceAttributes": PATH}, "cannot be specified in combination"),
        ("subject", {"resourceAttributes": PODS}, "at least one of user or group must be specified"),
        ("subject", {"user": "ann"}, "exactly one of nonResourceAttributes or resourceAttributes must be specified"),
        ("local", {"user": "ann", "nonResourceAttributes": PATH}, "disallowed on this kind of request"),
        ("local", {"user": "ann", "resourceAttributes": PODS | {"namespace": "other"}}, "must match metadata.namesp"),
    ],
)
async def test_incomplete_or_contradicting_reviews_are_refused(
    api: RawApi, kind: str, spec: dict[str, Any], problem: str
) -> None:
    path = {
        "self": f"{AUTHORIZATION}/selfsubjectaccessreviews",
        "subject": f"{AUTHORIZATION}/subjectaccessreviews",
        "local": api.path("localsubjectaccessreviews", group=AUTHORIZATION[1:]),
    }[kind]
    reply = await api.post(path, {"metadata": {"namespace": api.namespace} if kind == "local" else {}, "spec": spec})
    assert (reply.code, reply.body["reason"]) == (422, "Invalid")
    assert problem in reply.message


async def test_review_of_another_shape_cannot_be_decoded(api: RawApi) -> None:
    reply = await api.post(f"{AUTHORIZATION}/subjectaccessreviews", {"spec": {"user": 7}})
    assert (reply.code, reply.body["reason"]) == (400, "BadRequest")


async def test_local_review_answers_about_its_namespace(api: RawApi) -> None:
    spec = {"groups": ["system:masters"], "resourceAttributes": PODS | {"namespace": api.namespace}}
    path = api.path("localsubjectaccessreviews", group=AUTHORIZATION[1:])
    reply = await api.post(path, {"metadata": {"namespace": api.namespace}, "spec": spec})
    assert (reply.code, reply.body["status"]["allowed"]) == (201, True)
    elsewhere = await api.post(path, {"metadata": {"namespace": "other"}, "spec": spec})
    assert elsewhere.code == 400


async def test_rules_review_names_roles_that_do_not_exist(api: RawApi) -> None:
    for name in ("gone", "lost"):
        binding = {
            "metadata": {"name": name},
            "roleRef": {"kind": "Role", "name": name},
            "subjects": [{"kind": "User", "name": "dora"}],
        }
        assert (await api.post(ROLE_BINDINGS.path(api.namespace), binding)).code == 201
    path, body = f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": api.namespace}}
    gone, lost = (f'role.rbac.authorization.k8s.io "{name}" not found' for name in ("gone", "lost"))
    reply = await eventually(
        lambda: user(api, "dora").post(path, body),
        lambda one: one.body["status"].get("evaluationError", "").count("not found") == 2,
    )
    # The real server lists them in the order of its cache.
    assert reply.body["status"]["evaluationError"] in {f"[{gone}, {lost}]", f"[{lost}, {gone}]"}


async def test_token_for_another_audience_is_explained(api: RawApi) -> None:
    await api.post(api.path("serviceaccounts"), {"metadata": {"name": "robot"}})
    reply = await api.post(api.path("serviceaccounts", "robot", "token"), {"spec": {"audiences": ["vault"]}})
    review = {"spec": {"token": reply.body["status"]["token"]}}
    status = (await api.post("/apis/authentication.k8s.io/v1/tokenreviews", review)).body["status"]
    assert not status.get("authenticated")
    assert 'token audiences ["vault"] is invalid for the target audiences' in status["error"]
