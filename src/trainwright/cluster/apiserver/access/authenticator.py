"""Finds the user of a request: by token, by client certificate, else anonymous; then the one that it impersonates."""

import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.authorizer import Authorizer
from trainwright.cluster.apiserver.access.request_info import Attributes
from trainwright.cluster.apiserver.access.service_account_tokens import ISSUER, Authenticated, ServiceAccountTokens
from trainwright.cluster.apiserver.access.token_signer import InvalidTokenError, UnknownTokenError, looks_like_token
from trainwright.cluster.apiserver.access.users import (
    ADMIN,
    ANONYMOUS,
    ANONYMOUS_USER,
    AUTHENTICATED,
    UNAUTHENTICATED,
    UserInfo,
    service_account_groups,
    split_service_account_name,
)

_AUTHENTICATION_GROUP = "authentication.k8s.io"
_EXTRA = "impersonate-extra-"
Headers = Sequence[tuple[str, str]]
"""Names and values; names may be repeated."""


class Authenticator:
    """`admin_token` is that of the cluster's kubeconfig."""

    def __init__(self, admin_token: str, tokens: ServiceAccountTokens, authorizer: Authorizer) -> None:
        self._admin_token = admin_token.encode()
        self._tokens = tokens
        self._authorizer = authorizer

    def user_of(self, headers: Headers, certificate: Mapping[str, Any] | None, now: datetime) -> UserInfo:
        """The user of the request, or the one that it impersonates. Raises 401 for an invalid token, 403 for a
        forbidden impersonation.

        `certificate` is the client's, which TLS has verified, as `ssl.SSLSocket.getpeercert` returns it.
        """
        user = self._sender(headers, certificate, now)
        wanted = [(name.lower(), value) for name, value in headers if name.lower().startswith("impersonate-")]
        return self._impersonated(user, wanted) if wanted else user

    def authenticate_token(self, token: str, audiences: Sequence[str], now: datetime) -> Authenticated:
        """The user of a token; raises InvalidTokenError."""
        given = token.encode(errors="surrogateescape")  # a header may have any byte
        if hmac.compare_digest(given, self._admin_token):
            if ISSUER not in audiences:
                raise InvalidTokenError("the token is for this API server only")
            return Authenticated(ADMIN, (ISSUER,))
        if not looks_like_token(token):
            raise UnknownTokenError("invalid bearer token")
        return self._tokens.authenticate(token, audiences, now)

    def _sender(self, headers: Headers, certificate: Mapping[str, Any] | None, now: datetime) -> UserInfo:
        if certificate and (user := user_of_certificate(certificate)):
            return user
        header = next((value for name, value in headers if name.lower() == "authorization"), "")
        scheme, _, token = header.strip().partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return ANONYMOUS_USER
        try:
            return self.authenticate_token(token.strip(), (ISSUER,), now).user
        except InvalidTokenError as error:
            raise errors.unauthorized() from error

    def _impersonated(self, sender: UserInfo, headers: Headers) -> UserInfo:
        """The user of the `Impersonate-` headers, if the sender may impersonate it and its groups."""
        name = next((value for key, value in headers if key == "impersonate-user"), "")
        groups = [value for key, value in headers if key == "impersonate-group"]
        uid = next((value for key, value in headers if key == "impersonate-uid"), "")
        extra: dict[str, list[str]] = {}
        for key, value in headers:
            if key.startswith(_EXTRA):
                extra.setdefault(unquote(key.removeprefix(_EXTRA)), []).append(value)
        if not name:
            if groups or extra or uid:
                raise errors.bad_request(f"requested {_references(groups, extra, uid)} without impersonating a user")
            return sender
        account = split_service_account_name(name)
        wanted = [("", "serviceaccounts", "", *account) if account else ("", "users", "", "", name)]
        wanted += [("", "groups", "", "", group) for group in groups]
        fields = [(key, value) for key, values in extra.items() for value in values]
        wanted += [(_AUTHENTICATION_GROUP, "userextras", key, "", value) for key, value in fields]
        wanted += [(_AUTHENTICATION_GROUP, "uids", "", "", uid)] if uid else []
        for target in wanted:
            self._authorizer.check(sender, Attributes("impersonate", *target))
        if account and not groups:
            groups = list(service_account_groups(account[0]))
        if name == ANONYMOUS:
            groups += [] if UNAUTHENTICATED in groups else [UNAUTHENTICATED]
        elif not {AUTHENTICATED, UNAUTHENTICATED} & set(groups):
            groups.append(AUTHENTICATED)
        return UserInfo(name, uid, tuple(groups), {key: tuple(values) for key, values in extra.items()})


def user_of_certificate(certificate: Mapping[str, Any]) -> UserInfo | None:
    """The common name is the user, each organization a group; None without a common name."""
    fields = [pair for relative in certificate.get("subject", ()) for pair in relative]
    name = next((value for field, value in fields if field == "commonName"), "")
    groups = [value for field, value in fields if field == "organizationName"]
    return UserInfo(name, groups=(*groups, AUTHENTICATED)) if name else None


def _references(groups: Sequence[str], extra: Mapping[str, Sequence[str]], uid: str) -> str:
    """The ObjectReferences of the real server's message: kind, namespace, name, uid, apiVersion, version, path."""
    version = f"{_AUTHENTICATION_GROUP}/v1"
    found = [f"{{Group  {group}    }}" for group in groups]
    found += [f"{{UserExtra  {value}  {version}  {key}}}" for key, values in extra.items() for value in values]
    found += [f"{{UID  {uid}  {version}  }}"] if uid else []
    return "[" + " ".join(found) + "]"
