"""Users of an API server under test: impersonated ones, service accounts, and the permissions that they are given."""

import base64
import json
from collections.abc import Mapping
from typing import Any

from tests.support.cluster.raw_api import RawApi, Reply
from tests.support.waiting import eventually
from trainwright.objects.resources import ROLE_BINDINGS, ROLES


class ApiUser:
    """Sends requests as another user: impersonated, or by a token."""

    def __init__(self, api: RawApi, headers: Mapping[str, str]) -> None:
        self.api, self.headers = api, headers

    async def send(self, method: str, path: str, body: Any = None, **options: Any) -> Reply:
        return await self.api.send(method, path, body, headers=self.headers, **options)

    async def get(self, path: str) -> Reply:
        return await self.send("GET", path)

    async def post(self, path: str, body: Any) -> Reply:
        return await self.send("POST", path, body)

    async def is_allowed(self, verb: str, resource: str, **attributes: str) -> bool:
        body = {"spec": {"resourceAttributes": {"verb": verb, "resource": resource, **attributes}}}
        reply = await self.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
        assert reply.code == 201, reply.body
        return bool(reply.body["status"]["allowed"])


def user(api: RawApi, name: str = "ann", *groups: str) -> ApiUser:
    headers = {"Impersonate-User": name}
    return ApiUser(api, headers | ({"Impersonate-Group": groups[0]} if groups else {}))


async def grant(api: RawApi, *rules: dict[str, Any], name: str = "ann", subject: dict[str, Any] | None = None) -> None:
    """Gives these rules in the test's namespace to a user, and waits until they are in force."""
    role = {"metadata": {"name": f"role-{name}"}, "rules": list(rules)}
    assert (await api.post(ROLES.path(api.namespace), role)).code == 201
    binding = {
        "metadata": {"name": f"bound-{name}"},
        "roleRef": {"kind": "Role", "name": f"role-{name}"},
        "subjects": [subject or {"kind": "User", "name": name}],
    }
    assert (await api.post(ROLE_BINDINGS.path(api.namespace), binding)).code == 201
    first = rules[0]
    account = subject is not None and subject["kind"] == "ServiceAccount"
    name = f"system:serviceaccount:{api.namespace}:{name}" if account else name
    attributes = {"namespace": api.namespace, "group": first["apiGroups"][0]}
    if first.get("resourceNames"):
        attributes["name"] = first["resourceNames"][0]
    plural, _, subresource = first["resources"][0].partition("/")
    if subresource:
        attributes["subresource"] = subresource
    await eventually(lambda: user(api, name).is_allowed(first["verbs"][0], plural, **attributes), bool)


async def account_token(api: RawApi, name: str = "robot", **spec: Any) -> str:
    reply = await api.post(api.path("serviceaccounts", name, "token"), {"spec": spec})
    assert reply.code == 201, reply.body
    return str(reply.body["status"]["token"])


async def new_account(api: RawApi, name: str = "robot") -> dict[str, Any]:
    reply = await api.post(api.path("serviceaccounts"), {"metadata": {"name": name}})
    assert reply.code == 201, reply.body
    return reply.metadata


def bearer(api: RawApi, token: str) -> ApiUser:
    return ApiUser(api, {"Authorization": f"Bearer {token}"})


def claims_of(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    claims: dict[str, Any] = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    return claims
