"""Self reviews (`kubectl auth can-i`, `whoami`): whoever holds the cluster's token may do everything."""

from trainwright.cluster.apiserver import errors
from trainwright.objects import Object, field_errors
from trainwright.objects.resources import Resource

USER = "trainwright-admin"
_GROUPS = ["system:masters", "system:authenticated"]
_EVERYTHING = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
_EVERY_PATH = {"verbs": ["*"], "nonResourceURLs": ["*"]}


def answered(kind: str, review: Object) -> Object:
    """The review with its `status` filled in."""
    statuses: dict[str, Object] = {
        "SelfSubjectAccessReview": {
            "allowed": True,
            "reason": "the embedded cluster has one user, who may do everything",
        },
        "SelfSubjectRulesReview": {
            "resourceRules": [_EVERYTHING],
            "nonResourceRules": [_EVERY_PATH],
            "incomplete": False,
        },
        "SelfSubjectReview": {"userInfo": {"username": USER, "groups": _GROUPS}},
    }
    if kind == "SelfSubjectAccessReview" and not (review.get("spec") or {}):
        missing = field_errors.required("spec", "exactly one of resourceAttributes and nonResourceAttributes")
        raise errors.invalid(Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", kind), "", [missing])
    group = "authentication.k8s.io" if kind == "SelfSubjectReview" else "authorization.k8s.io"
    return review | {"kind": kind, "apiVersion": f"{group}/v1", "status": statuses[kind]}
