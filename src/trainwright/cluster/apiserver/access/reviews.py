"""Reviews: `kubectl auth can-i`, `whoami`, and the questions of other servers about users and tokens.

A review is created and not stored; the answer is its `status`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import msgspec

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.access.authenticator import Authenticator
from trainwright.cluster.apiserver.access.authorizer import Authorizer
from trainwright.cluster.apiserver.access.request_info import Attributes
from trainwright.cluster.apiserver.access.rules import PolicyRule
from trainwright.cluster.apiserver.access.service_account_tokens import ISSUER
from trainwright.cluster.apiserver.access.token_signer import InvalidTokenError, UnknownTokenError
from trainwright.cluster.apiserver.access.users import UserInfo
from trainwright.objects import Object, field_errors
from trainwright.objects.field_errors import FieldError
from trainwright.objects.resources import Resource
from trainwright.objects.times import format_time

_AUTHORIZATION, _AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
_ONE_OF = "exactly one of nonResourceAttributes or resourceAttributes must be specified"


def _review(group: str, kind: str, *, namespaced: bool = False) -> Resource:
    return Resource(group, "v1", f"{kind.lower()}s", kind, namespaced=namespaced)


REVIEWS = (
    _review(_AUTHENTICATION, "SelfSubjectReview"),
    _review(_AUTHENTICATION, "TokenReview"),
    _review(_AUTHORIZATION, "LocalSubjectAccessReview", namespaced=True),
    _review(_AUTHORIZATION, "SelfSubjectAccessReview"),
    _review(_AUTHORIZATION, "SelfSubjectRulesReview"),
    _review(_AUTHORIZATION, "SubjectAccessReview"),
)


class _ResourceAttributes(msgspec.Struct):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""


class _NonResourceAttributes(msgspec.Struct):
    path: str = ""
    verb: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    """The fields of all reviews."""

    resource_attributes: _ResourceAttributes | None = None
    non_resource_attributes: _NonResourceAttributes | None = None
    user: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None
    namespace: str = ""
    token: str = ""
    audiences: list[str] | None = None


class _Metadata(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Body(msgspec.Struct):
    spec: _Spec = msgspec.field(default_factory=_Spec)
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


@dataclass(frozen=True, slots=True)
class Reviewer:
    """Answers reviews with what the authorizer and the authenticator would decide."""

    authorizer: Authorizer
    authenticator: Authenticator

    def review(self, resource: Resource, namespace: str, body: Object, user: UserInfo, now: datetime) -> Object:
        """The review with its `status`."""
        try:
            sent = msgspec.convert(body, _Body)
        except msgspec.ValidationError as error:
            raise errors.undecodable(resource, str(error)) from error
        status = self._status(resource, namespace, sent, user, now)
        answer = body | {"kind": resource.kind, "apiVersion": resource.api_version, "status": status}
        answer["metadata"] = body.get("metadata") or {}
        if resource.kind == "SelfSubjectReview":
            answer["metadata"] = {"creationTimestamp": format_time(now)}
        elif resource.kind == "SelfSubjectRulesReview":
            answer |= {"metadata": {}, "spec": {}}
        return answer

    def _status(self, resource: Resource, namespace: str, sent: _Body, user: UserInfo, now: datetime) -> Object:
        match resource.kind:
            case "SelfSubjectReview":
                return {"userInfo": user.as_object()}
            case "TokenReview":
                return self._token(sent.spec, now)
            case "SelfSubjectRulesReview":
                return self._rules(user, sent.spec.namespace)
        _raise_if_invalid(resource, namespace, sent)
        if resource.kind != "SelfSubjectAccessReview":
            user = UserInfo(sent.spec.user, sent.spec.uid, tuple(sent.spec.groups or ()))
        decision = self.authorizer.authorize(user, _attributes(sent.spec))
        return {"allowed": decision.allowed} | ({"reason": decision.reason} if decision.reason else {})

    def _token(self, spec: _Spec, now: datetime) -> Object:
        if not spec.token:
            raise errors.bad_request("token is required for TokenReview in authentication")
        try:
            found = self.authenticator.authenticate_token(spec.token, spec.audiences or (ISSUER,), now)
        except UnknownTokenError:
            return {"user": {}, "error": "invalid bearer token"}
        except InvalidTokenError as error:
            return {"user": {}, "error": f"[invalid bearer token, {error}]"}
        return {"authenticated": True, "user": found.user.as_object(), "audiences": list(found.audiences)}

    def _rules(self, user: UserInfo, namespace: str) -> Object:
        if not namespace:
            raise errors.bad_request("no namespace on request")
        rules = self.authorizer.rules_of(user, namespace)
        status: Object = {
            "resourceRules": [_resource_rule(rule) for rule in rules if rule.resources],
            "nonResourceRules": [
                {"verbs": list(rule.verbs), "nonResourceURLs": list(rule.urls)} for rule in rules if rule.urls
            ],
            "incomplete": False,
        }
        if missing := self.authorizer.missing_roles(user, namespace):
            status["evaluationError"] = missing
        return status


def _attributes(spec: _Spec) -> Attributes:
    wanted = spec.resource_attributes
    if wanted is not None:
        return Attributes(wanted.verb, wanted.group, wanted.resource, wanted.subresource, wanted.namespace, wanted.name)
    path = spec.non_resource_attributes or _NonResourceAttributes()
    return Attributes(path.verb, path=path.path)


def _resource_rule(rule: PolicyRule) -> Object:
    fields: Mapping[str, tuple[str, ...]] = {
        "verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources, "resourceNames": rule.names,
    }  # fmt: skip
    return {field: list(values) for field, values in fields.items() if values}


def _raise_if_invalid(resource: Resource, namespace: str, sent: _Body) -> None:
    spec, found = sent.spec, list[FieldError]()
    attributes, path = spec.resource_attributes, spec.non_resource_attributes
    if attributes is not None and path is not None:
        shown = {"Path": path.path, "Verb": path.verb}
        why = "cannot be specified in combination with resourceAttributes"
        found.append(field_errors.invalid("spec.nonResourceAttributes", shown, why))
    if attributes is None and path is None:
        found.append(field_errors.invalid("spec.resourceAttributes", None, _ONE_OF))
    if resource.kind != "SelfSubjectAccessReview" and not spec.user and not spec.groups:
        found.append(field_errors.invalid("spec.user", "", "at least one of user or group must be specified"))
    if resource.namespaced:
        inside = attributes.namespace if attributes is not None else namespace
        if inside != (sent.metadata.namespace or namespace):
            why = "must match metadata.namespace"
            found.append(field_errors.invalid("spec.resourceAttributes.namespace", inside, why))
        if path is not None:
            shown = {"Path": path.path, "Verb": path.verb}
            found.append(
                field_errors.invalid("spec.nonResourceAttributes", shown, "disallowed on this kind of request")
            )
    if found:
        # The real server's message has no kind here.
        raise errors.invalid(replace(resource, kind=""), "", found)
