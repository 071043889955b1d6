"""Tokens of service accounts, and the admission of pods by their account.

Every test here passes unchanged on the embedded server and on the real kube-apiserver.
"""

import base64
import json
from typing import Any

import pytest

from tests.support.cluster.api_users import account_token, bearer, claims_of, new_account
from tests.support.cluster.raw_api import APPLY, RawApi, Reply
from tests.support.waiting import eventually


class TestTokens:
    async def test_token_names_account_and_expiry(self, api: RawApi) -> None:
        metadata = await new_account(api)
        path = api.path("serviceaccounts", "robot", "token")
        reply = await api.post(path, {"spec": {"expirationSeconds": 700}})
        assert (reply.code, reply.body["kind"]) == (201, "TokenRequest")
        assert reply.body["spec"]["expirationSeconds"] == 700
        claims = claims_of(reply.body["status"]["token"])
        assert claims["sub"] == f"system:serviceaccount:{api.namespace}:robot"
        assert claims["exp"] - claims["iat"] == 700
        assert claims["aud"] == reply.body["spec"]["audiences"]
        assert claims["kubernetes.io"] == {
            "namespace": api.namespace,
            "serviceaccount": {"name": "robot", "uid": metadata["uid"]},
        }
        assert reply.metadata["name"] == "robot"

    @pytest.mark.parametrize(
        ("seconds", "problem"),
        [(599, "may not specify a duration less than 10 minutes"),
         (2**32 + 1, "may not specify a duration larger than 2^32 seconds")],
    )  # fmt: skip
    async def test_lifetime_has_limits(self, api: RawApi, seconds: int, problem: str) -> None:
        await new_account(api)
        reply = await api.post(api.path("serviceaccounts", "robot", "token"), {"spec": {"expirationSeconds": seconds}})
        assert reply.code == 422
        assert reply.message == (
            f'TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: {seconds}: '
            f"{problem}"
        )

    async def test_token_of_a_missing_account_is_not_found(self, api: RawApi) -> None:
        reply = await api.post(api.path("serviceaccounts", "nobody", "token"), {})
        assert (reply.code, reply.message) == (404, 'serviceaccounts "nobody" not found')

    @pytest.mark.thorough("real")  # which believes a token for ten seconds
    async def test_token_is_invalid_after_its_account_is_deleted(self, api: RawApi) -> None:
        await new_account(api)
        robot = bearer(api, await account_token(api))
        assert (await robot.get("/version")).code == 200
        await api.delete(api.path("serviceaccounts", "robot"))
        await eventually(lambda: robot.get("/version"), lambda one: one.code == 401)
        await new_account(api)
        assert (await robot.get("/version")).code == 401

    async def test_token_for_another_audience_is_unauthorized(self, api: RawApi) -> None:
        await new_account(api)
        vault = await account_token(api, audiences=["vault"])
        assert (await bearer(api, vault).get("/version")).code == 401
        review = {"spec": {"token": vault, "audiences": ["vault"]}}
        status = (await api.post("/apis/authentication.k8s.io/v1/tokenreviews", review)).body["status"]
        assert (status["authenticated"], status["audiences"]) == (True, ["vault"])

    @pytest.mark.thorough("real")  # which believes a token for ten seconds
    async def test_token_bound_to_a_secret_ends_with_it(self, api: RawApi) -> None:
        await new_account(api)
        secret = (await api.post(api.path("secrets"), {"metadata": {"name": "s"}})).metadata
        bound = {"kind": "Secret", "apiVersion": "v1", "name": "s"}
        token = await account_token(api, boundObjectRef=bound)
        assert claims_of(token)["kubernetes.io"]["secret"] == {"name": "s", "uid": secret["uid"]}
        assert (await bearer(api, token).get("/version")).code == 200
        await api.delete(api.path("secrets", "s"))
        await eventually(lambda: bearer(api, token).get("/version"), lambda one: one.code == 401)

    async def test_token_bound_to_a_pod_names_it(self, api: RawApi) -> None:
        await new_account(api)
        spec = {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}
        pod = (await api.post(api.path("pods"), {"metadata": {"name": "p"}, "spec": spec})).metadata
        bound = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": pod["uid"]}
        token = await account_token(api, boundObjectRef=bound)
        reply = await bearer(api, token).post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
        extra = reply.body["status"]["userInfo"]["extra"]
        assert extra["authentication.kubernetes.io/pod-name"] == ["p"]
        assert extra["authentication.kubernetes.io/pod-uid"] == [pod["uid"]]
        await new_account(api, "other")
        wrong = await api.post(api.path("serviceaccounts", "other", "token"), {"spec": {"boundObjectRef": bound}})
        assert (wrong.code, wrong.message) == (
            400,
            'cannot bind token for serviceaccount "other" to pod running with different serviceaccount name.',
        )
        stale = {"spec": {"boundObjectRef": {**bound, "uid": "other"}}}
        reply = await api.post(api.path("serviceaccounts", "robot", "token"), stale)
        assert (reply.code, reply.body["reason"]) == (409, "Conflict")
        assert reply.message == (
            'Operation cannot be fulfilled on Pod "p": the UID in the bound object reference (other) does not match '
            "the UID in record. The object might have been deleted and then recreated"
        )

    @pytest.mark.parametrize(
        ("reference", "shown"),
        [
            ({}, "/, Kind="),
            ({"kind": "ConfigMap", "apiVersion": "v1", "name": "c"}, "/v1, Kind=ConfigMap"),
            ({"kind": "Pod", "apiVersion": "apps/v1", "name": "p"}, "apps/v1, Kind=Pod"),
        ],
    )
    async def test_token_is_bound_to_pods_secrets_and_nodes_alone(
        self, api: RawApi, reference: dict[str, str], shown: str
    ) -> None:
        await new_account(api)
        reply = await api.post(api.path("serviceaccounts", "robot", "token"), {"spec": {"boundObjectRef": reference}})
        assert (reply.code, reply.message) == (400, f"cannot bind token to object of type {shown}")

    async def test_changed_token_is_unauthorized(self, api: RawApi) -> None:
        await new_account(api)
        header, claims, signature = (await account_token(api)).split(".")
        forged = json.dumps(claims_of(f"{header}.{claims}.{signature}") | {"sub": "system:admin"})
        changed = base64.urlsafe_b64encode(forged.encode()).rstrip(b"=").decode()
        none = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
        for token in (
            f"{header}.{changed}.{signature}",
            f"{none}.{claims}.",
            f"{header}.{claims}.{signature[:-4]}",
            "a.b.c",
        ):
            assert (await bearer(api, token).get("/version")).code == 401

    async def test_issuer_publishes_its_keys(self, api: RawApi) -> None:
        await new_account(api)
        robot = bearer(api, await account_token(api))
        configuration = await robot.get("/.well-known/openid-configuration")
        assert configuration.body["issuer"] == claims_of(robot.headers["Authorization"])["iss"]
        assert configuration.body["id_token_signing_alg_values_supported"] == ["ES256"]
        keys = await robot.send("GET", "/openid/v1/jwks", accept="application/jwk-set+json")
        [key] = keys.body["keys"]
        assert (key["use"], key["kty"], key["crv"], key["alg"]) == ("sig", "EC", "P-256", "ES256")
        token = robot.headers["Authorization"].split()[1]
        header = json.loads(base64.urlsafe_b64decode(token.split(".")[0] + "=="))
        assert header == {"alg": "ES256", "kid": key["kid"]}


class TestServiceAccountAdmission:
    """Every pod runs as an account that exists, and gets its token as a volume."""

    MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"

    async def pod(self, api: RawApi, name: str = "p", **spec: Any) -> Reply:
        body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
        return await api.post(api.path("pods"), body)

    async def test_pod_gets_the_default_account_and_its_token(self, api: RawApi) -> None:
        reply = await self.pod(api, initContainers=[{"name": "init", "image": "i"}])
        assert reply.code == 201, reply.body
        spec = reply.body["spec"]
        assert (spec["serviceAccountName"], spec["serviceAccount"]) == ("default", "default")
        [volume] = spec["volumes"]
        assert volume["name"].startswith("kube-api-access-")
        assert volume["projected"] == {
            "defaultMode": 420,
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [
                    {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
            ],
        }  # fmt: skip
        mount = {"name": volume["name"], "readOnly": True, "mountPath": self.MOUNT}
        assert [one["volumeMounts"] for one in (*spec["initContainers"], *spec["containers"])] == [[mount], [mount]]
        owned = reply.metadata["managedFields"][0]["fieldsV1"]["f:spec"]
        assert not {"f:volumes", "f:serviceAccountName"} & owned.keys()

    async def test_missing_account_is_refused(self, api: RawApi) -> None:
        reply = await self.pod(api, serviceAccountName="nobody")
        missing = f'error looking up service account {api.namespace}/nobody: serviceaccount "nobody" not found'
        assert (reply.code, reply.message) == (403, f'pods "p" is forbidden: {missing}')

    async def test_apply_is_admitted_too(self, api: RawApi) -> None:
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
        body |= {"spec": {"serviceAccountName": "nobody", "containers": [{"name": "c", "image": "i"}]}}
        path = api.path("pods", "p") + "?fieldManager=m"
        assert (await api.patch(path, body, APPLY)).code == 403
        del body["spec"]["serviceAccountName"]  # type: ignore[attr-defined]
        reply = await api.patch(path, body, APPLY)
        assert reply.body["spec"]["volumes"][0]["name"].startswith("kube-api-access-")

    async def test_pod_and_account_can_refuse_the_token(self, api: RawApi) -> None:
        account = {"metadata": {"name": "quiet"}, "automountServiceAccountToken": False}
        account["imagePullSecrets"] = [{"name": "registry"}]
        assert (await api.post(api.path("serviceaccounts"), account)).code == 201

        async def quiet(name: str, **spec: Any) -> dict[str, Any]:
            reply = await self.pod(api, name, serviceAccountName="quiet", **spec)
            found: dict[str, Any] = reply.body["spec"]
            return found

        await eventually(lambda: self.pod(api, "probe", serviceAccountName="quiet"), lambda one: one.code != 403)
        spec = await quiet("a")
        assert "volumes" not in spec
        assert spec["imagePullSecrets"] == [{"name": "registry"}]
        assert "volumes" in await quiet("b", automountServiceAccountToken=True)
        spec = (await self.pod(api, "c", automountServiceAccountToken=False)).body["spec"]
        assert "volumes" not in spec

    async def test_own_mount_at_the_path_is_kept(self, api: RawApi) -> None:
        own = {"name": "mine", "mountPath": self.MOUNT}
        containers = [{"name": "c", "image": "i", "volumeMounts": [own]}]
        spec = (await self.pod(api, volumes=[{"name": "mine", "emptyDir": {}}], containers=containers)).body["spec"]
        assert [one["name"] for one in spec["volumes"]] == ["mine"]
        assert spec["containers"][0]["volumeMounts"] == [own]
