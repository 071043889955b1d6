"""Users as authentication finds them: name, uid, groups and extra fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainwright.objects import Object
from trainwright.objects.names import dns_label_problem, dns_subdomain_problem

MASTERS = "system:masters"
"""The group that may do everything."""

AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = "system:anonymous"
_SERVICE_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class UserInfo:
    """The sender of a request."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_master(self) -> bool:
        return MASTERS in self.groups

    def as_object(self) -> Object:
        """The `UserInfo` of authentication.k8s.io/v1."""
        shown = {
            "username": self.name,
            "uid": self.uid,
            "groups": list(self.groups),
            "extra": {key: list(values) for key, values in self.extra.items()},
        }
        return {key: value for key, value in shown.items() if value}


ADMIN = UserInfo("kubernetes-admin", groups=(MASTERS, AUTHENTICATED))
"""The user of the cluster's kubeconfig."""

ANONYMOUS_USER = UserInfo(ANONYMOUS, groups=(UNAUTHENTICATED,))


def service_account_name(namespace: str, name: str) -> str:
    return f"{_SERVICE_ACCOUNT}{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, ...]:
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")


def split_service_account_name(username: str) -> tuple[str, str] | None:
    """Namespace and name of a service account; None for another user."""
    if not username.startswith(_SERVICE_ACCOUNT):
        return None
    namespace, colon, name = username.removeprefix(_SERVICE_ACCOUNT).partition(":")
    if not colon or dns_label_problem(namespace) or dns_subdomain_problem(name):
        return None
    return namespace, name
