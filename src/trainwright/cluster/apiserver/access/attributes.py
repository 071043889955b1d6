"""What a request wants to do, as the authorizer sees it: verb and resource, or verb and path."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainwright.objects.names import path_segment_problem
from trainwright.objects.selectors import SelectorError, parse_field_selector

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_POD_SESSIONS = {"exec", "attach", "portforward"}
_NAMESPACE_SUBRESOURCES = {"status", "finalize"}


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
        return (self.group, self.resource) == ("", "pods") and self.subresource in _POD_SESSIONS

    @property
    def combined_resource(self) -> str:
        """`pods`, or `pods/log`."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def request_attributes(method: str, path: str, query: Mapping[str, str]) -> Attributes:
    """Follows the real server's RequestInfo: it does not depend on which resources are served."""
    parts = path.strip("/").split("/")
    if len(parts) < 3 or parts[0] not in {"api", "apis"} or (parts[0] == "apis" and len(parts) < 4):
        return Attributes(method.lower(), path=path or "/")
    group = parts[1] if parts[0] == "apis" else ""
    parts = parts[3:] if parts[0] == "apis" else parts[2:]
    verb = _VERBS.get(method, "")
    if parts[0] in {"watch", "proxy"} and len(parts) > 1:
        verb, parts = parts[0], parts[1:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 1:
        namespace = parts[1]
        if len(parts) > 2 and parts[2] not in _NAMESPACE_SUBRESOURCES:
            parts = parts[2:]
    resource, name, subresource = (*parts, "", "")[:3]
    if verb == "get" and not name:
        verb = "watch" if query.get("watch", "false").lower() not in {"false", "0"} else "list"
        name = _selected_name(query.get("fieldSelector", ""))
    if verb == "delete" and not name:
        verb = "deletecollection"
    return Attributes(verb, group, resource, subresource, namespace, name)


def _selected_name(field_selector: str) -> str:
    """The name that `metadata.name=NAME` demands: a rule with that resourceName allows such a list or watch."""
    if "metadata.name" not in field_selector:
        return ""
    try:
        names = [one.value for one in parse_field_selector(field_selector) if one.path == "metadata.name" and one.equal]
    except SelectorError:
        return ""
    return names[0] if names and not path_segment_problem(names[0]) else ""
