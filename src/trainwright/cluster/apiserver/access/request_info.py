"""RequestInfo: what a request wants, parsed once from its method and URL.

Authorization, metrics and routing use this one value, so that nothing is served that the authorizer was not asked for.
The parser follows k8s.io/apiserver/pkg/endpoints/request. It does not know which resources are served.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from multidict import MultiDict

from trainwright.cluster.apiserver import errors
from trainwright.objects.names import path_segment_problem
from trainwright.objects.selectors import SelectorError, parse_field_selector

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_VERBS_IN_PATH = {"watch", "proxy"}
_NAMESPACE_SUBRESOURCES = {"status", "finalize"}
_POD_SESSIONS = {"exec", "attach", "portforward"}
_INVALID_ESCAPE = re.compile("%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Attributes:
    """What the authorizer is asked: a verb and a resource, or a verb and a path.

    `path` is set for requests that name no resource; then the fields of a resource are empty.
    """

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


@dataclass(frozen=True, slots=True)
class RequestInfo(Attributes):
    """A list or watch has the `name` that its field selector demands; `name_in_path` is empty then."""

    method: str = "GET"
    url_path: str = "/"
    """The whole path, without escapes."""
    segments: tuple[str, ...] = ()
    """The path without slashes at both ends; empty segments in between are kept."""
    version: str = ""
    in_namespace: bool = False
    """Whether the path has `namespaces/NAMESPACE` before the resource. The namespace may be empty."""
    rest: tuple[str, ...] = ()
    """The segments from the resource on."""
    verb_in_path: bool = False
    """At the deprecated paths `watch/…`, and at `proxy/…`, which are not served any more."""

    @property
    def name_in_path(self) -> str:
        return self.rest[1] if len(self.rest) > 1 else ""

    @property
    def prefix(self) -> str:
        """`api` or `apis` of a request for a resource; empty for a path that does not begin with one slash."""
        return "" if self.url_path.startswith("//") else self.segments[0]


def split_target(target: str) -> tuple[str, str]:
    """Path and query of a request line, both escaped. An absolute URL is that of a client that uses a proxy."""
    if not target.isascii():
        target = target.encode(errors="surrogateescape").decode(errors="replace")
    path, _, query = target.partition("?")
    if not path.startswith("/") and "://" in path:
        _, slash, below = path.partition("://")[2].partition("/")
        path = slash + below
    return path, query


def parse_query(text: str) -> MultiDict[str]:
    """The parameters as Go's net/url reads them: one with a semicolon or a malformed escape is left out."""
    found: MultiDict[str] = MultiDict()
    for pair in text.split("&"):
        if not pair or ";" in pair:
            continue
        if "%" in pair or "+" in pair:
            if _INVALID_ESCAPE.search(pair):
                continue
            name, _, value = pair.replace("+", " ").partition("=")
            found.add(unquote(name), unquote(value))
        else:
            name, _, value = pair.partition("=")
            found.add(name, value)
    return found


def parse_request(method: str, escaped_path: str, query: Mapping[str, str]) -> RequestInfo:
    """Raises 400 for a path with a malformed escape. An escaped slash separates segments, as on the real server."""
    path = escaped_path
    if "%" in path:
        if _INVALID_ESCAPE.search(path):
            raise errors.bad_request("the path has a malformed escape: write % as %25")
        path = unquote(path)
    segments = tuple(path.strip("/").split("/"))
    first = 3 if segments[0] == "apis" else 2
    if len(segments) <= first or segments[0] not in {"api", "apis"}:
        return RequestInfo(method.lower(), path=path or "/", method=method, url_path=path, segments=segments)
    group, version, rest = segments[1] if first == 3 else "", segments[first - 1], segments[first:]
    verb = _VERBS.get(method, "")
    verb_in_path = rest[0] in _VERBS_IN_PATH and len(rest) > 1
    if verb_in_path:
        verb, rest = rest[0], rest[1:]
    namespace, in_namespace = "", False
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and rest[2] not in _NAMESPACE_SUBRESOURCES:
            rest, in_namespace = rest[2:], True
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 and verb != "proxy" else ""
    if not name:
        if verb == "get":
            verb = "watch" if read_flag(query, "watch") else "list"
            name = selected_name(query.get("fieldSelector", ""))
        elif verb == "delete":
            verb = "deletecollection"
    return RequestInfo(
        *(verb, group, rest[0], subresource, namespace, name, ""),
        *(method, path, segments, version, in_namespace, rest, verb_in_path),
    )


def read_flag(query: Mapping[str, str], name: str) -> bool:
    """Any value but `false` and `0` means true, also an empty one."""
    value = query.get(name)
    return value is not None and value.lower() not in {"false", "0"}


def selected_name(field_selector: str) -> str:
    """The name that `metadata.name=NAME` demands: a rule with that resourceName allows such a list or watch."""
    if "metadata.name" not in field_selector:
        return ""
    try:
        terms = parse_field_selector(field_selector)
    except SelectorError:
        return ""
    names = [term.value for term in terms if term.path == "metadata.name" and term.equal]
    return names[0] if names and not path_segment_problem(names[0]) else ""
