"""Tokens of service accounts: issued for an audience and an object, checked against the live objects.

`kubectl create token` and the node's projected volumes get expiring tokens; a Secret of type
kubernetes.io/service-account-token gets one that is valid while Secret and account exist.
"""

import base64
import hmac
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.token_signer import InvalidTokenError, TokenSigner
from trainwright.cluster.apiserver.access.users import (
    AUTHENTICATED,
    UserInfo,
    service_account_groups,
    service_account_name,
)
from trainwright.cluster.apiserver.storage.store import ObjectStore, Stored
from trainwright.objects import Object, field_errors
from trainwright.objects.paths import value_at
from trainwright.objects.resources import NODES, PODS, SECRETS, SERVICE_ACCOUNTS, Resource
from trainwright.objects.times import format_time, parse_time

ISSUER = "https://kubernetes.default.svc.cluster.local"
"""Also the audience of this API server."""

_LEGACY_ISSUER = "kubernetes/serviceaccount"
_LEGACY = "kubernetes.io/serviceaccount/"
SECRET_TYPE = "kubernetes.io/service-account-token"  # noqa: S105 (a type, no token)
ACCOUNT_NAME = "kubernetes.io/service-account.name"
ACCOUNT_UID = "kubernetes.io/service-account.uid"

_DEFAULT_SECONDS = 3600
_SHORTEST, _LONGEST = 600, 2**32
_EXTENDED_FROM, _EXTENDED_SECONDS = 3607, 365 * 24 * 3600
"""The expiry that ServiceAccount admission asks for; such tokens of pods are accepted for a year, as clients that never
read the file again need it."""

_LEEWAY = timedelta(minutes=1)
_BOUND: dict[str, Resource] = {"Pod": PODS, "Secret": SECRETS, "Node": NODES}
_TOKEN_REQUEST = Resource("authentication.k8s.io", "v1", "tokenrequests", "TokenRequest")


@dataclass(frozen=True, slots=True)
class Authenticated:
    """A valid token: its user, and those of the wanted audiences that it is for."""

    user: UserInfo
    audiences: tuple[str, ...]


class ServiceAccountTokens:
    def __init__(self, store: ObjectStore, signer: TokenSigner) -> None:
        self._store = store
        self._signer = signer

    def request(self, namespace: str, name: str, body: Object, now: datetime) -> Object:
        """The answer to a TokenRequest for a service account."""
        _check_name(body, namespace, name)
        account = self._existing(SERVICE_ACCOUNTS, namespace, name)
        uid = account.obj["metadata"]["uid"]
        if value_at(body, "metadata", "uid") not in {None, "", uid}:
            why = (
                f"the UID in the token request ({value_at(body, 'metadata', 'uid')}) does not match the UID of the "
                f"service account ({uid})"
            )
            raise errors.conflict(_named(_TOKEN_REQUEST), name, why)
        spec = _read_spec(body)
        seconds: int = spec["expirationSeconds"]
        bound, claims = self._bind(spec.get("boundObjectRef"), namespace, name)
        lifetime = seconds
        if bound == "Pod" and seconds == _EXTENDED_FROM and set(spec["audiences"]) <= {ISSUER}:
            claims["warnafter"] = int(now.timestamp()) + seconds
            lifetime = _EXTENDED_SECONDS
        moment = int(now.timestamp())
        token = self._signer.sign(
            {
                "aud": spec["audiences"],
                "exp": moment + lifetime,
                "iat": moment,
                "iss": ISSUER,
                "jti": str(uuid.uuid4()),
                "kubernetes.io": {"namespace": namespace, **claims, "serviceaccount": {"name": name, "uid": uid}},
                "nbf": moment,
                "sub": service_account_name(namespace, name),
            }
        )
        metadata = (body.get("metadata") or {}) | {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "creationTimestamp": format_time(now),
        }
        expiry = format_time(now + timedelta(seconds=seconds))
        return {
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": metadata,
            "spec": spec,
            "status": {"token": token, "expirationTimestamp": expiry},
        }

    def fill_secret(self, secret: Object, authority: bytes) -> None:
        """Adds token, CA and namespace to a Secret for a service account that exists."""
        metadata = secret["metadata"]
        annotations = metadata.get("annotations") or {}
        name, namespace = annotations.get(ACCOUNT_NAME, ""), metadata["namespace"]
        account = self._store.get(SERVICE_ACCOUNTS.qualified_plural, namespace, name)
        if secret.get("type") != SECRET_TYPE or account is None:
            return
        uid = account.obj["metadata"]["uid"]
        if annotations.get(ACCOUNT_UID, uid) != uid:
            return
        metadata["annotations"] = annotations | {ACCOUNT_UID: uid}
        claims = {
            "iss": _LEGACY_ISSUER,
            f"{_LEGACY}namespace": namespace,
            f"{_LEGACY}secret.name": metadata["name"],
            f"{_LEGACY}service-account.name": name,
            f"{_LEGACY}service-account.uid": uid,
            "sub": service_account_name(namespace, name),
        }
        data = secret.setdefault("data", {})
        texts = {"ca.crt": authority, "namespace": namespace.encode(), "token": self._signer.sign(claims).encode()}
        for key, text in texts.items():
            if not data.get(key):
                data[key] = base64.b64encode(text).decode()

    def authenticate(self, token: str, audiences: Sequence[str], now: datetime) -> Authenticated:
        """The service account of a valid token; raises InvalidTokenError if it is not valid or for another audience."""
        claims = self._signer.verify(token)
        if claims.get("iss") == _LEGACY_ISSUER:
            return self._authenticate_legacy(token, claims, audiences)
        if claims.get("iss") != ISSUER:
            raise InvalidTokenError("invalid issuer")
        matching = tuple(audience for audience in audiences if audience in claims["aud"])
        if not matching:
            wanted, given = (" ".join(f'"{audience}"' for audience in each) for each in (claims["aud"], audiences))
            raise InvalidTokenError(f"token audiences [{wanted}] is invalid for the target audiences [{given}]")
        moment = now.timestamp()
        if claims["exp"] < moment - _LEEWAY.total_seconds():
            raise InvalidTokenError("service account token has expired")
        if claims["nbf"] > moment + _LEEWAY.total_seconds():
            raise InvalidTokenError("service account token is not valid yet")
        return Authenticated(self._check_live(claims, now), matching)

    def _check_live(self, claims: Object, now: datetime) -> UserInfo:
        """The account, and the object that the token is bound to, still exist and are the same ones."""
        own = claims["kubernetes.io"]
        namespace, account = own["namespace"], own["serviceaccount"]
        stored = self._store.get(SERVICE_ACCOUNTS.qualified_plural, namespace, account["name"])
        if stored is None:
            raise InvalidTokenError(f'serviceaccounts "{account["name"]}" not found')
        found = stored.obj["metadata"]["uid"]
        if found != account["uid"]:
            raise InvalidTokenError(f"service account UID ({found}) does not match claim ({account['uid']})")
        if _is_deleted(stored, now):
            raise InvalidTokenError(f"service account {namespace}/{account['name']} has been deleted")
        extra: dict[str, tuple[str, ...]] = {}
        if claims.get("jti"):
            extra["authentication.kubernetes.io/credential-id"] = (f"JTI={claims['jti']}",)
        for kind, resource in _BOUND.items():
            bound = own.get(kind.lower())
            if bound is None or (kind == "Node" and "pod" in own):
                continue
            scope = namespace if resource.namespaced else ""
            target = self._store.get(resource.qualified_plural, scope, bound["name"])
            if target is None or _is_deleted(target, now):
                raise InvalidTokenError("service account token has been invalidated")
            if (uid := target.obj["metadata"]["uid"]) != bound["uid"]:
                why = f"service account {kind.lower()} ref claim ({bound['uid']})"
                raise InvalidTokenError(f"{kind.lower()} UID ({uid}) does not match {why}")
        for kind in ("pod", "node"):
            if kind in own:
                extra |= {
                    f"authentication.kubernetes.io/{kind}-{field}": (own[kind][field],)
                    for field in ("name", "uid")
                    if own[kind].get(field)
                }
        return _user(namespace, account["name"], account["uid"], extra)

    def _authenticate_legacy(self, token: str, claims: Object, audiences: Sequence[str]) -> Authenticated:
        namespace = claims[f"{_LEGACY}namespace"]
        name, uid = claims[f"{_LEGACY}service-account.name"], claims[f"{_LEGACY}service-account.uid"]
        secret = self._store.get(SECRETS.qualified_plural, namespace, claims[f"{_LEGACY}secret.name"])
        if secret is None or "deletionTimestamp" in secret.obj["metadata"]:
            raise InvalidTokenError("service account token has been invalidated")
        stored = base64.b64decode((secret.obj.get("data") or {}).get("token") or "")
        if not hmac.compare_digest(stored, token.encode()):
            raise InvalidTokenError("token does not match server's copy")
        account = self._store.get(SERVICE_ACCOUNTS.qualified_plural, namespace, name)
        found = account.obj["metadata"] if account is not None else {}
        if found.get("uid") != uid or "deletionTimestamp" in found:
            raise InvalidTokenError("service account token has been invalidated")
        matching = tuple(audience for audience in audiences if audience == ISSUER)
        if not matching:
            raise InvalidTokenError("the token is for this API server only")
        return Authenticated(_user(namespace, name, uid, {}), matching)

    def _bind(self, reference: Object | None, namespace: str, account: str) -> tuple[str, Object]:
        """The kind of the object that a token is bound to, and the claims that name it."""
        if reference is None:
            return "", {}
        kind = reference.get("kind", "")
        group, _, version = reference.get("apiVersion", "").rpartition("/")
        resource = _BOUND.get(kind)
        if resource is None or group:
            raise errors.bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
        name = reference.get("name", "")
        target = self._existing(resource, namespace if resource.namespaced else "", name).obj
        uid = target["metadata"]["uid"]
        if kind == "Pod" and target["spec"].get("serviceAccountName") != account:
            why = f'cannot bind token for serviceaccount "{account}" to pod running with different serviceaccount name.'
            raise errors.bad_request(why)
        if reference.get("uid") not in {None, "", uid}:
            why = (
                f"the UID in the bound object reference ({reference['uid']}) does not match the UID in record. "
                "The object might have been deleted and then recreated"
            )
            raise errors.conflict(_named(resource), name, why)
        claims: Object = {kind.lower(): {"name": name, "uid": uid}}
        if kind == "Pod" and (node := target["spec"].get("nodeName")):
            found = self._store.get(NODES.qualified_plural, "", node)
            claims["node"] = {"name": node} | ({"uid": found.obj["metadata"]["uid"]} if found else {})
        return kind, claims

    def _existing(self, resource: Resource, namespace: str, name: str) -> Stored:
        stored = self._store.get(resource.qualified_plural, namespace, name)
        if stored is None:
            raise errors.not_found(resource, name)
        return stored


def _user(namespace: str, name: str, uid: str, extra: dict[str, tuple[str, ...]]) -> UserInfo:
    groups = (*service_account_groups(namespace), AUTHENTICATED)
    return UserInfo(service_account_name(namespace, name), uid, groups, extra)


def _is_deleted(stored: Stored, now: datetime) -> bool:
    moment = stored.obj["metadata"].get("deletionTimestamp")
    return moment is not None and parse_time(moment) < now.astimezone(UTC) - _LEEWAY


def _check_name(body: Object, namespace: str, name: str) -> None:
    for field, expected in (("name", name), ("namespace", namespace)):
        given = value_at(body, "metadata", field)
        if given and given != expected:
            wrong = field_errors.invalid(
                f"metadata.{field}", given, f"must match the service account {field} if specified"
            )
            raise errors.invalid(_TOKEN_REQUEST, name, [wrong])


def _read_spec(body: Object) -> Object:
    spec: Any = body.get("spec") or {}
    reference = value_at(spec, "boundObjectRef")
    audiences = value_at(spec, "audiences") or [ISSUER]
    seconds = value_at(spec, "expirationSeconds")
    seconds = _DEFAULT_SECONDS if seconds is None else seconds
    well_formed = isinstance(audiences, list) and all(isinstance(audience, str) for audience in audiences)
    if not well_formed or not isinstance(seconds, int) or isinstance(seconds, bool):
        raise errors.undecodable(_TOKEN_REQUEST, "spec: audiences must be text, expirationSeconds a number")
    if reference is not None and not (
        isinstance(reference, dict) and all(isinstance(value, str) for value in reference.values())
    ):
        raise errors.undecodable(_TOKEN_REQUEST, "spec.boundObjectRef: must be a reference")
    problem = ""
    if seconds < _SHORTEST:
        problem = "may not specify a duration less than 10 minutes"
    elif seconds > _LONGEST:
        problem = "may not specify a duration larger than 2^32 seconds"
    if problem:
        wrong = field_errors.invalid("spec.expirationSeconds", seconds, problem)
        raise errors.invalid(_TOKEN_REQUEST, "", [wrong])
    return {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": reference}


def _named(resource: Resource) -> Resource:
    """The real server's messages have the kind in place of the plural here."""
    return Resource(resource.group, resource.version, resource.kind, resource.kind)
