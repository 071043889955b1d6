"""Self subject reviews (`kubectl auth can-i`, `whoami`): the cluster's only user is allowed everything."""

from trainwright.cluster.apiserver import errors
from trainwright.cluster.apiserver.http.bodies import nested_object
from trainwright.objects import Object, field_errors
from trainwright.objects.resources import Resource

USER = "trainwright-admin"
_GROUPS = ["system:masters", "system:authenticated"]
REVIEWS = {
    ("authorization.k8s.io", "v1"): [
        ("selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("selfsubjectrulesreviews", "SelfSubjectRulesReview"),
    ],
    ("authentication.k8s.io", "v1"): [("selfsubjectreviews", "SelfSubjectReview")],
}
"""Plural and kind by group version. Reviews are created and not stored."""

_EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
_EVERY_PATH = {"verbs": ["*"], "nonResourceURLs": ["*"]}


def review(kind: str, body: Object) -> Object:
    """The review with its `status`."""
    statuses: dict[str, Object] = {
        "SelfSubjectAccessReview": {
            "allowed": True,
            "reason": "the embedded cluster has one user, with all permissions",
        },
        "SelfSubjectRulesReview": {
            "resourceRules": [_EVERYTHING],
            "nonResourceRules": [_EVERY_PATH],
            "incomplete": False,
        },
        "SelfSubjectReview": {"userInfo": {"username": USER, "groups": _GROUPS}},
    }
    if kind == "SelfSubjectAccessReview" and not nested_object(body, "spec", kind=kind):
        missing = field_errors.required("spec", "exactly one of resourceAttributes and nonResourceAttributes")
        raise errors.invalid(Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", kind), "", [missing])
    group = "authentication.k8s.io" if kind == "SelfSubjectReview" else "authorization.k8s.io"
    return body | {"kind": kind, "apiVersion": f"{group}/v1", "status": statuses[kind]}
