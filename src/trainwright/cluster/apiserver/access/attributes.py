"""What the authorizer is asked: a verb and a resource, or a verb and a path."""

from dataclasses import dataclass

_POD_SESSIONS = {"exec", "attach", "portforward"}


@dataclass(frozen=True, slots=True)
class Attributes:
    """`path` is set for requests that name no resource; then the fields of a resource are empty."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def is_resource_request(self) -> bool:
        return not self.path

    @property
    def opens_pod_session(self) -> bool:
        """Whether it is kubectl's exec, attach or port-forward."""
        return self.subresource in _POD_SESSIONS and (self.group, self.resource) == ("", "pods")

    @property
    def combined_resource(self) -> str:
        """`pods`, or `pods/log`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource
