"""What a client has asked and got, one value per request on the wire: for whoever counts and times them."""

from dataclasses import dataclass

from trainwright.kube.requests import Request

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class RequestSeen:
    """One attempt; every retry is one more. `seconds` is the time to the whole answer, or to the start of a stream."""

    request: Request
    status: int | None
    seconds: float

    @property
    def code(self) -> str:
        """The HTTP status as a label; `<error>`, as in other Kubernetes clients, if there was no answer."""
        return "<error>" if self.status is None else str(self.status)

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def verb(self) -> str:
        """The verb as the API server's rules and metrics name it."""
        if self.method != "GET":
            return _VERBS.get(self.method, self.method.lower())
        if ("watch", "true") in self.request.params:
            return "watch"
        return "list" if _is_collection(self.request.path) else "get"

    @property
    def resource(self) -> str:
        """`pods`, `pods/status`, `pytorchjobs.kubeflow.org`; the path itself where it names no resource."""
        parsed = _parse(self.request.path)
        if parsed is None:
            return self.request.path
        group, plural, _, subresource = parsed
        return "/".join(filter(None, (f"{plural}.{group}" if group else plural, subresource)))


def _is_collection(path: str) -> bool:
    parsed = _parse(path)
    return parsed is not None and not parsed[2]


def _parse(path: str) -> tuple[str, str, str, str] | None:
    """Group, plural, name and subresource. Of these, names alone are anybody's choice; no label should hold one."""
    match path.strip("/").split("/"):
        case ["api", _, *rest] if rest:
            group = ""
        case ["apis", group, _, *rest] if rest:
            pass
        case _:
            return None
    if len(rest) > 2 and rest[0] == "namespaces" and rest[2] not in {"status", "finalize"}:
        rest = rest[2:]
    plural, name, subresource = [*rest, "", ""][:3]
    return group, plural, name, subresource
