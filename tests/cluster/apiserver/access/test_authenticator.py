"""The user of a request, by its headers and its certificate."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cluster.object_stores import store_with
from trainwright.cluster.apiserver.access.access_control import AccessControl
from trainwright.cluster.apiserver.access.authenticator import Headers
from trainwright.cluster.apiserver.access.service_account_tokens import ISSUER
from trainwright.cluster.apiserver.access.token_signer import InvalidTokenError
from trainwright.cluster.apiserver.access.users import ADMIN, ANONYMOUS_USER, UserInfo, split_service_account_name
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.objects.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ADMIN_TOKEN = ("Authorization", "Bearer admin")


def access(store: ObjectStore | None = None) -> AccessControl:
    return AccessControl(store or ObjectStore(None), "admin")


def user_of(*headers: tuple[str, str], certificate: Mapping[str, Any] | None = None) -> UserInfo:
    return access().authenticator.user_of(headers, certificate, NOW)


def impersonated(*headers: tuple[str, str]) -> UserInfo:
    """By the administrator."""
    return user_of(ADMIN_TOKEN, *headers)


class TestTokens:
    @pytest.mark.parametrize("header", ["Bearer admin", "bearer admin", "  Bearer   admin  "])
    def test_token_of_the_kubeconfig_is_the_administrator(self, header: str) -> None:
        assert user_of(("authorization", header)) == ADMIN

    @pytest.mark.parametrize("header", ["", "Bearer", "Bearer  ", "Basic YWRtaW46YWRtaW4=", "admin"])
    def test_request_without_a_token_is_anonymous(self, header: str) -> None:
        assert user_of(("Authorization", header)) == ANONYMOUS_USER
        assert user_of() == ANONYMOUS_USER

    @given(st.text(st.characters(min_codepoint=33, max_codepoint=0xFF) | st.just("\udcff"), min_size=1))
    def test_no_other_token_is_accepted(self, token: str) -> None:
        if token == "admin":
            return
        with pytest.raises(StatusError) as raised:
            user_of(("Authorization", f"Bearer {token}"))
        assert raised.value.code == 401

    def test_token_of_the_kubeconfig_is_for_this_server_alone(self) -> None:
        authenticator = access().authenticator
        assert authenticator.authenticate_token("admin", ["vault", ISSUER], NOW).audiences == (ISSUER,)
        with pytest.raises(InvalidTokenError, match="for this API server only"):
            authenticator.authenticate_token("admin", ["vault"], NOW)


class TestCertificates:
    def certificate(self, *fields: tuple[str, str]) -> dict[str, Any]:
        return {"subject": tuple((field,) for field in fields)}

    def test_common_name_is_the_user_and_organizations_are_groups(self) -> None:
        fields = [("organizationName", "team"), ("commonName", "ann"), ("organizationName", "ops")]
        user = user_of(ADMIN_TOKEN, certificate=self.certificate(*fields))
        assert user == UserInfo("ann", groups=("team", "ops", "system:authenticated"))

    @pytest.mark.parametrize("fields", [[], [("organizationName", "system:masters")], [("commonName", "")]])
    def test_certificate_without_a_common_name_is_no_user(self, fields: list[tuple[str, str]]) -> None:
        assert user_of(certificate=self.certificate(*fields)) == ANONYMOUS_USER
        assert user_of(ADMIN_TOKEN, certificate=self.certificate(*fields)) == ADMIN


class TestImpersonation:
    @pytest.mark.parametrize(
        ("groups", "found"),
        [
            ([], ["system:authenticated"]),
            (["team"], ["team", "system:authenticated"]),
            (["system:authenticated", "team"], ["system:authenticated", "team"]),
            (["system:unauthenticated"], ["system:unauthenticated"]),
        ],
    )
    def test_user_is_authenticated_unless_its_groups_say_otherwise(self, groups: list[str], found: list[str]) -> None:
        headers = [("Impersonate-User", "ann"), *(("Impersonate-Group", group) for group in groups)]
        assert impersonated(*headers).groups == tuple(found)

    @pytest.mark.parametrize("groups", [[], ["system:unauthenticated"]])
    def test_anonymous_user_stays_unauthenticated(self, groups: list[str]) -> None:
        headers = [("Impersonate-User", "system:anonymous"), *(("Impersonate-Group", group) for group in groups)]
        assert impersonated(*headers) == ANONYMOUS_USER

    def test_service_account_has_the_groups_that_are_named(self) -> None:
        account = ("Impersonate-User", "system:serviceaccount:a:robot")
        assert "system:serviceaccounts:a" in impersonated(account).groups
        assert impersonated(account, ("Impersonate-Group", "team")).groups == ("team", "system:authenticated")

    def test_extra_fields_are_unescaped_and_collected(self) -> None:
        extra = [("Impersonate-Extra-Example.com%2Fscopes", value) for value in ("view", "edit")]
        user = impersonated(("Impersonate-User", "ann"), ("Impersonate-Uid", "7"), *extra)
        assert (user.uid, user.extra) == ("7", {"example.com/scopes": ("view", "edit")})

    @pytest.mark.parametrize(
        ("headers", "shown"),
        [
            ([("Impersonate-Group", "team")], "{Group  team    }"),
            ([("Impersonate-Uid", "7")], "{UID  7  authentication.k8s.io/v1  }"),
            ([("Impersonate-Extra-Scope", "view")], "{UserExtra  view  authentication.k8s.io/v1  scope}"),
        ],
    )
    def test_groups_and_fields_need_a_user(self, headers: Headers, shown: str) -> None:
        with pytest.raises(StatusError) as raised:
            impersonated(*headers)
        assert (raised.value.code, raised.value.message) == (
            400,
            f"requested [{shown}] without impersonating a user",
        )

    def test_unknown_header_impersonates_nobody(self) -> None:
        assert impersonated(("Impersonate-Shoe-Size", "42")) == ADMIN

    @pytest.mark.parametrize(
        ("header", "allowed"),
        [
            (("Impersonate-User", "ann"), True),
            (("Impersonate-User", "bob"), False),
            (("Impersonate-User", "system:serviceaccount:a:robot"), False),
            (("Impersonate-Group", "team"), True),
            (("Impersonate-Group", "system:masters"), False),
            (("Impersonate-Uid", "7"), False),
            (("Impersonate-Extra-Scope", "view"), True),
            (("Impersonate-Extra-Scope", "edit"), False),
            (("Impersonate-Extra-Other", "view"), False),
        ],
    )
    async def test_sender_needs_a_permission_for_every_part(self, header: tuple[str, str], allowed: bool) -> None:
        rules = [
            {"verbs": ["impersonate"], "apiGroups": [""], "resources": ["users", "groups"],
             "resourceNames": ["ann", "team"]},
            {"verbs": ["impersonate"], "apiGroups": ["authentication.k8s.io"], "resources": ["userextras/scope"],
             "resourceNames": ["view"]},
        ]  # fmt: skip
        binding = {"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [{"kind": "User", "name": "eve"}]}
        store = await store_with(
            (CLUSTER_ROLES, {"metadata": {"name": "r"}, "rules": rules}),
            (CLUSTER_ROLE_BINDINGS, {"metadata": {"name": "b"}, **binding}),
        )
        eve = {"subject": ((("commonName", "eve"),),)}
        headers = [header] if header[0] == "Impersonate-User" else [("Impersonate-User", "ann"), header]

        authenticator = access(store).authenticator
        if allowed:
            assert authenticator.user_of(headers, eve, NOW).name == "ann"
            return
        with pytest.raises(StatusError) as raised:
            authenticator.user_of(headers, eve, NOW)
        assert raised.value.code == 403


@pytest.mark.parametrize(
    ("username", "found"),
    [
        ("system:serviceaccount:a:robot", ("a", "robot")),
        ("system:serviceaccount:a:robot.x", ("a", "robot.x")),
        ("system:serviceaccount:a.b:robot", None),
        ("system:serviceaccount:a", None),
        ("system:serviceaccount:a:", None),
        ("system:serviceaccount::robot", None),
        ("system:serviceaccount:a:b:c", None),
        ("ann", None),
    ],
)
def test_names_of_service_accounts_have_a_namespace(username: str, found: tuple[str, str] | None) -> None:
    assert split_service_account_name(username) == found
