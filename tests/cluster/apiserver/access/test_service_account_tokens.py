"""Tokens of service accounts: for whom they are valid, and how long."""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.cluster.api_users import claims_of
from tests.support.cluster.object_stores import put, remove, store_with
from trainwright.cluster.apiserver.access.service_account_tokens import (
    ACCOUNT_NAME,
    ACCOUNT_UID,
    ISSUER,
    SECRET_TYPE,
    ServiceAccountTokens,
)
from trainwright.cluster.apiserver.access.token_signer import InvalidTokenError, TokenSigner
from trainwright.cluster.apiserver.access.users import UserInfo
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.objects import Object
from trainwright.objects.resources import NODES, PODS, SECRETS, SERVICE_ACCOUNTS, Resource
from trainwright.objects.times import format_time

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
ROBOT = "system:serviceaccount:a:robot"
SIGNER = TokenSigner()
GROUPS = ("system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated")


def named(name: str, **metadata: Any) -> Object:
    return {"metadata": {"name": name, "namespace": "a", **metadata}}


ACCOUNT = named("robot", uid="robot-1")
POD = {**named("p", uid="pod-1"), "spec": {"serviceAccountName": "robot", "nodeName": "n"}}
NODE: Object = {"metadata": {"name": "n", "uid": "node-1"}}
SECRET = {**named("s", annotations={ACCOUNT_NAME: "robot"}, uid="secret-1"), "type": SECRET_TYPE}


@dataclass
class Cluster:
    """A store with an account, a pod on a node, and a Secret; the token signer of a cluster."""

    store: ObjectStore
    tokens: ServiceAccountTokens

    def token(self, **spec: Any) -> str:
        body = {"spec": spec} if spec else {}
        return str(self.tokens.request("a", "robot", body, NOW)["status"]["token"])

    def bound(self, kind: str, name: str, **reference: str) -> str:
        return self.token(boundObjectRef={"kind": kind, "apiVersion": "v1", "name": name, **reference})

    def user(self, token: str, later: timedelta = timedelta(0)) -> UserInfo:
        return self.tokens.authenticate(token, [ISSUER], NOW + later).user

    def problem(self, token: str, later: timedelta = timedelta(0)) -> str:
        with pytest.raises(InvalidTokenError) as raised:
            self.user(token, later)
        return str(raised.value)

    def refusal(self, body: Object) -> tuple[int, str]:
        with pytest.raises(StatusError) as raised:
            self.tokens.request("a", "robot", body, NOW)
        return raised.value.code, raised.value.message

    async def filled_secret(self) -> str:
        """The token of the Secret, which is stored."""
        secret = {**SECRET, "metadata": dict(SECRET["metadata"])}
        self.tokens.fill_secret(secret, b"PEM")
        await put(self.store, SECRETS, secret)
        return base64.b64decode(secret["data"]["token"]).decode()


@pytest.fixture
async def cluster() -> Cluster:
    store = await store_with((SERVICE_ACCOUNTS, ACCOUNT), (PODS, POD), (NODES, NODE), (SECRETS, SECRET))
    return Cluster(store, ServiceAccountTokens(store, SIGNER))


class TestRequests:
    @pytest.mark.parametrize(
        ("body", "code", "problem"),
        [
            ({"metadata": {"name": "other"}}, 422, "metadata.name: Invalid value: "),
            ({"metadata": {"namespace": "b"}}, 422, "must match the service account namespace if specified"),
            ({"metadata": {"uid": "old"}}, 409, "the UID in the token request (old) does not match the UID of the"),
            ({"spec": {"audiences": ["x", 1]}}, 400, "audiences must be text"),
            ({"spec": {"audiences": "x"}}, 400, "audiences must be text"),
            ({"spec": {"expirationSeconds": "700"}}, 400, "expirationSeconds a number"),
            ({"spec": {"expirationSeconds": True}}, 400, "expirationSeconds a number"),
            ({"spec": {"boundObjectRef": ["p"]}}, 400, "spec.boundObjectRef: must be a reference"),
            ({"spec": {"boundObjectRef": {"kind": "Pod", "name": 7}}}, 400, "spec.boundObjectRef: must be a reference"),
            ({"spec": {"boundObjectRef": {"kind": "Pod", "name": "q"}}}, 404, 'pods "q" not found'),
        ],
    )
    async def test_invalid_request_gets_no_token(self, cluster: Cluster, body: Any, code: int, problem: str) -> None:
        found, message = cluster.refusal(body)
        assert found == code
        assert problem in message

    async def test_request_may_repeat_what_the_path_says(self, cluster: Cluster) -> None:
        body = {"metadata": {"name": "robot", "namespace": "a", "uid": "robot-1"}}
        answer = cluster.tokens.request("a", "robot", body, NOW)
        assert answer["metadata"] == body["metadata"] | {"creationTimestamp": format_time(NOW)}
        assert answer["status"]["expirationTimestamp"] == format_time(NOW + timedelta(hours=1))

    async def test_token_of_a_pod_is_accepted_for_a_year_by_this_server_alone(self, cluster: Cluster) -> None:
        """Clients that never read the file again need it."""
        reference = {"kind": "Pod", "name": "p"}
        extended = cluster.token(expirationSeconds=3607, boundObjectRef=reference)
        assert claims_of(extended)["kubernetes.io"]["warnafter"] == NOW.timestamp() + 3607
        assert cluster.user(extended, timedelta(days=364)).name == ROBOT
        assert "expired" in cluster.problem(extended, timedelta(days=366))
        for spec in (
            {"expirationSeconds": 3606, "boundObjectRef": reference},
            {"expirationSeconds": 3607},
            {"expirationSeconds": 3607, "boundObjectRef": reference, "audiences": [ISSUER, "vault"]},
        ):
            claims = claims_of(cluster.token(**spec))
            assert "warnafter" not in claims["kubernetes.io"]
            assert claims["exp"] - claims["iat"] == spec["expirationSeconds"]

    async def test_token_of_a_pod_names_its_node(self, cluster: Cluster) -> None:
        pod, node = {"name": "p", "uid": "pod-1"}, {"name": "n", "uid": "node-1"}
        own = claims_of(cluster.bound("Pod", "p"))["kubernetes.io"]
        assert (own["pod"], own["node"]) == (pod, node)
        await remove(cluster.store, NODES, "", "n")
        token = cluster.bound("Pod", "p", uid="pod-1")
        assert claims_of(token)["kubernetes.io"]["node"] == {"name": "n"}
        extra = cluster.user(token).extra
        assert extra["authentication.kubernetes.io/node-name"] == ("n",)
        assert "authentication.kubernetes.io/node-uid" not in extra


class TestExpiry:
    async def test_token_is_valid_for_its_time_and_a_minute_of_leeway(self, cluster: Cluster) -> None:
        token = cluster.token(expirationSeconds=600)
        user = UserInfo(ROBOT, "robot-1", GROUPS)
        for valid in (-MINUTE, timedelta(0), 11 * MINUTE):
            found = cluster.user(token, valid)
            assert (found.name, found.uid, found.groups) == (user.name, user.uid, user.groups)
        second = timedelta(seconds=1)
        assert cluster.problem(token, 11 * MINUTE + second) == "service account token has expired"
        assert cluster.problem(token, -MINUTE - second) == "service account token is not valid yet"

    async def test_token_of_another_issuer_is_invalid(self, cluster: Cluster) -> None:
        claims = claims_of(cluster.token())
        assert cluster.problem(SIGNER.sign(claims | {"iss": "https://elsewhere"})) == "invalid issuer"
        assert cluster.problem(SIGNER.sign({"sub": ROBOT})) == "invalid issuer"

    async def test_token_without_an_identity_of_its_own_names_none(self, cluster: Cluster) -> None:
        claims = claims_of(cluster.token())
        assert cluster.user(SIGNER.sign(claims)).extra == {
            "authentication.kubernetes.io/credential-id": (f"JTI={claims.pop('jti')}",)
        }
        assert cluster.user(SIGNER.sign(claims)).extra == {}


def recreated(obj: Object) -> Object:
    return {**obj, "metadata": obj["metadata"] | {"uid": "new"}}


def deleted(obj: Object) -> Object:
    """A finalizer keeps it."""
    return {**obj, "metadata": obj["metadata"] | {"deletionTimestamp": format_time(NOW)}}


class TestLiveObjects:
    """A token ends with the objects that it names."""

    @pytest.mark.parametrize("change", [recreated, deleted, None])
    @pytest.mark.parametrize(
        ("kind", "name", "resource", "obj"),
        [
            ("Pod", "p", SERVICE_ACCOUNTS, ACCOUNT),
            ("Pod", "p", PODS, POD),
            ("Secret", "s", SECRETS, SECRET),
            ("Node", "n", NODES, NODE),
        ],
    )
    async def test_token_ends_with_the_object(
        self,
        cluster: Cluster,
        change: Callable[[Object], Object] | None,
        kind: str,
        name: str,
        resource: Resource,
        obj: Object,
    ) -> None:
        token = cluster.bound(kind, name)
        assert cluster.user(token).name == ROBOT
        namespace, stored = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]

        if change is None:
            await remove(cluster.store, resource, namespace, stored)
        else:
            await put(cluster.store, resource, change(obj))

        problem = cluster.problem(token, 2 * MINUTE)
        if change is recreated:
            assert "does not match" in problem
        else:
            assert problem.endswith(("has been invalidated", "has been deleted", 'serviceaccounts "robot" not found'))

    async def test_token_of_a_pod_outlives_its_node(self, cluster: Cluster) -> None:
        token = cluster.bound("Pod", "p")
        await remove(cluster.store, NODES, "", "n")
        assert cluster.user(token).name == ROBOT

    async def test_object_that_is_about_to_be_deleted_is_used_for_a_minute(self, cluster: Cluster) -> None:
        token = cluster.bound("Pod", "p")
        await put(cluster.store, PODS, deleted(POD))
        assert cluster.user(token, MINUTE).name == ROBOT
        assert cluster.problem(token, MINUTE + timedelta(seconds=1)) == "service account token has been invalidated"


class TestTokensInSecrets:
    async def test_secret_gets_token_authority_and_namespace(self, cluster: Cluster) -> None:
        secret = {
            **named("s", annotations={ACCOUNT_NAME: "robot"}),
            "type": SECRET_TYPE,
            "data": {"ca.crt": "bWluZQ=="},
        }
        cluster.tokens.fill_secret(secret, b"PEM")
        assert secret["metadata"]["annotations"] == {ACCOUNT_NAME: "robot", ACCOUNT_UID: "robot-1"}
        data = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
        assert (data["ca.crt"], data["namespace"]) == ("mine", "a"), "what the client has sent stays"
        assert claims_of(data["token"])["sub"] == ROBOT

    @pytest.mark.parametrize(
        ("kind", "annotations"),
        [
            ("Opaque", {ACCOUNT_NAME: "robot"}),
            (SECRET_TYPE, {ACCOUNT_NAME: "nobody"}),
            (SECRET_TYPE, {ACCOUNT_NAME: "robot", ACCOUNT_UID: "robot-0"}),
            (SECRET_TYPE, None),
        ],
    )
    async def test_other_secrets_get_nothing(self, cluster: Cluster, kind: str, annotations: Any) -> None:
        secret = {**named("s", annotations=annotations), "type": kind}
        before = {**secret, "metadata": dict(secret["metadata"])}
        cluster.tokens.fill_secret(secret, b"PEM")
        assert secret == before

    async def test_token_never_expires(self, cluster: Cluster) -> None:
        token = await cluster.filled_secret()
        user = cluster.user(token, timedelta(days=3650))
        assert user == UserInfo(ROBOT, "robot-1", GROUPS)

    async def test_token_is_for_this_server_alone(self, cluster: Cluster) -> None:
        token = await cluster.filled_secret()
        with pytest.raises(InvalidTokenError, match="for this API server only"):
            cluster.tokens.authenticate(token, ["vault"], NOW)
        assert cluster.tokens.authenticate(token, ["vault", ISSUER], NOW).audiences == (ISSUER,)

    @pytest.mark.parametrize("change", [recreated, deleted, None])
    @pytest.mark.parametrize(("resource", "name"), [(SECRETS, "s"), (SERVICE_ACCOUNTS, "robot")])
    async def test_token_ends_with_its_secret_and_its_account(
        self, cluster: Cluster, change: Callable[[Object], Object] | None, resource: Resource, name: str
    ) -> None:
        token = await cluster.filled_secret()
        stored = cluster.store.get(resource.qualified_plural, "a", name)
        assert stored is not None

        if change is None:
            await remove(cluster.store, resource, "a", name)
        elif change is recreated and resource == SECRETS:
            await put(cluster.store, SECRETS, {**SECRET, "data": {"token": "b3RoZXI="}})
        else:
            await put(cluster.store, resource, change(stored.obj))

        assert cluster.problem(token) in {
            "service account token has been invalidated",
            "token does not match server's copy",
        }
