"""HTTP requests to an API server that a source of random numbers chooses. Most are nearly right, because others do not
get far."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

import yaml

from tests.support.cluster.raw_api import APPLY, JSON_PATCH, MERGE, STRATEGIC, TABLE
from tests.support.objects.hostile import paths_in
from tests.support.objects.junk import nested

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"


@dataclass(frozen=True)
class FuzzedRequest:
    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None

    def __str__(self) -> str:
        return f"{self.method} {self.path} {dict(self.headers)} {self.body!r:.3000}"


@dataclass(frozen=True)
class ServedKind:
    """A kind of the server under test, with the schema that its OpenAPI document has."""

    path: str
    """Of the collection, with `{namespace}`."""
    api_version: str
    kind: str
    schema: Mapping[str, Any]
    schemas: Mapping[str, Any]
    """Those that `schema` refers to."""


def kinds_of(document: Mapping[str, Any]) -> list[ServedKind]:
    schemas = document["components"]["schemas"]
    found = []
    for path, operations in document["paths"].items():
        if path.endswith("/{name}") or "post" not in operations:
            continue
        identity = operations["post"]["x-kubernetes-group-version-kind"]
        schema = next(one for one in schemas.values() if identity in one.get("x-kubernetes-group-version-kind", ()))
        version = "/".join(filter(None, (identity["group"], identity["version"])))
        found.append(ServedKind(path, version, identity["kind"], schema, schemas))
    return found


_TEXTS = (
    "", " ", "a", "b", "True", "False", "1", "-1", "1Gi", "1e3", "5m", "0.1", "1e999", "9" * 5000, "1n", "Always",
    "Never", "None", "ClusterIP", "10.0.0.1", "127.0.0.1", "::1", "http", "TCP", "80", "65536", "*", "a/b", "a=b",
    "a in (b", "2026-01-01T00:00:00Z", "2026-13-01T00:00:00Z", "0001-01-01T00:00:00.123456Z", "\x00", "\n", "\x1b[2J",
    "\u202e", "💥" * 20, "x" * 70, "x" * 5000, "$(A)", "../../etc", "{{", "^(a+)+$", "a" * 64 + "/b", "IfNotPresent",
    "v1", "apps/v1", "Pod", "main", "example.com/a", "kubernetes.io/x", "cpu", "memory", "100%", "-5%", "Background",
    "(", "[a-", "(?=a)", "\\1", "a{1000}", "\ud800", "ExternalName", "Recreate", "Foreground", "\r\n", "é", "İ", "٣",
    "a," * 3000, "(" * 3000, "a in (b),(" * 1000, "a." * 3000, "/" * 3000, "{" * 1000, "-" * 3000, "a " * 3000,
    "{.spec.a[?(@.b)]}", ".spec..a", ".[", "+Inf", "NaN", "1_000", "0x10", " 1", "-0", "1.5Ki", "1E", "1Ei", "999999Ei",
)  # fmt: skip
_NUMBERS = (
    0, 1, 2, -1, 80, 8080, 65535, 65536, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1,
    10**30, -(10**40), 10**400, 0.5, 1.0, 1e300, -0.0, 1e-300,
)  # fmt: skip
_LONG = 300_000
_SHAPES: tuple[Any, ...] = (
    [],
    {},
    [None],
    [[]],
    [{}],
    {"": ""},
    {"a": None},
    {"a": {}},
    ["a", "a"],
    [1, "a"],
    {"\x00": 1},
    {"a": [1]},
)
_NAMES = (
    "",
    "A",
    "a.b",
    "a_b",
    "..",
    "%00",
    "%2e%2e",
    "x" * 300,
    "%C3%A4",
    "status",
    "{name}",
    "a%2Fb",
    "-",
    "default",
)
_NAMESPACES = ("default", "kube-system", "nowhere", "A_", "%00", "x" * 70, "a")
_SUBRESOURCES = (
    *(
        "status",
        "scale",
        "log",
        "exec",
        "attach",
        "portforward",
        "binding",
        "eviction",
        "token",
        "finalize",
        "approval",
    ),
    *("ephemeralcontainers", "proxy", "proxy/a/b", "resize", "x", "", "status/status"),
)
_PARAMETERS = (
    *("limit", "continue", "labelSelector", "fieldSelector", "resourceVersion", "resourceVersionMatch", "dryRun"),
    *("fieldManager", "fieldValidation", "force", "propagationPolicy", "gracePeriodSeconds", "pretty", "container"),
    *("tailLines", "sinceSeconds", "sinceTime", "limitBytes", "previous", "timestamps", "command", "stdin", "tty"),
    *("sendInitialEvents", "allowWatchBookmarks", "timeoutSeconds", "watch", "follow", "orphanDependents", "ports"),
)
_ARGUMENTS = (
    *("", "true", "false", "All", "Strict", "Warn", "Ignore", "Exact", "NotOlderThan", "0", "1", "10", "a=b", "!a"),
    *("a!=b,c in (d,e)", "metadata.name=a", "spec.nodeName=x", "status.phase!=Running", "eyJ2IjoxfQ"),
)
_METHODS = ("GET", "GET", *["POST"] * 6, "PUT", "PUT", *["PATCH"] * 5, "DELETE")
_ODD_METHODS = ("HEAD", "OPTIONS", "TRACE", "FOO", "get", "PROPFIND")
_ACCEPT = (
    *("application/json", "*/*", "", TABLE, PROTOBUF, "application/yaml", "text/html", "a/b;q=x", ";;;", ","),
    *("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", "application/json;as=Table;v=v1;g=x,*/*"),
    *("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", "application/json;stream=watch"),
)
_CONTENT_TYPES = (
    *(JSON, YAML, PROTOBUF, MERGE, STRATEGIC, JSON_PATCH, APPLY, "application/cbor", "", "a", "text/html", ";"),
    *("application/json; charset=utf-16", "multipart/form-data", "application/JSON"),
)
_OTHER_PATHS = (
    *("/", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version", "/healthz", "/livez", "/readyz"),
    *("/metrics", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1", "/openapi/v3/apis/apps/v1", "/logs", "/debug"),
    *("/.well-known/openid-configuration", "/openid/v1/jwks", "/api/v2", "/apis/nowhere.io/v1", "/apis/apps/v9/x"),
    *("/api/v1/namespaces/default/finalize", "/api/v1/namespaces/default/status", "/api/v1/watch/pods", "//", "/%2e"),
    *("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/apis/authentication.k8s.io/v1/tokenreviews"),
    *("/apis/authorization.k8s.io/v1/subjectaccessreviews", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"),
    *("/apis/authentication.k8s.io/v1/selfsubjectreviews", "/api/v1/namespaces/default/serviceaccounts/default/token"),
    *("/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews", "/api/v1/componentstatuses"),
    *("/apis/metrics.k8s.io/v1beta1/pods", "/apis/metrics.k8s.io/v1beta1/nodes/local", "/%ff%fe", "/api/v1/%00/x"),
    *("/api/v1/namespaces/default/bindings", "/" + "a/" * 500, "/" + "a" * 5000, "/apis//v1/pods", "/api/v1//pods"),
)
_RAW = (
    b"", b"{", b"null", b"[]", b"5", b'"a"', b"\xff\xfe", b"\xef\xbb\xbf{}", b"{}{}", b"NaN", b'{"a":Infinity}',
    b'{"metadata":{"name":"a","name":"b"},"metadata":{"name":"c"}}', b'{"a":"\\ud800"}', b'{"\\u0000":1}',
    b"[" * 3000, b'{"a":' * 3000, b"[" * 900 + b"]" * 900, b'{"a":' * 400 + b"1" + b"}" * 400, b"1" * 5000,
    b"k8s\x00", b"k8s\x00\x0a\xff\xff\xff\xff\x0f", b"k8s\x00" + bytes(range(256)), b"a: &a [*a]", b"a: !!python/x {}",
    b"- " * 500, b"? [a]\n: b", b"---\n---\n", b"\x00" * 100, b'{"kind":"DeleteOptions","propagationPolicy":"x"}',
    b'{"kind":"List","items":[{}]}', b"[" + b"1," * 20000 + b"1]", b'{"data":{"a":"' + b"x" * 200000 + b'"}}',
    b"{" + b",".join(b'"a":1' for _ in range(5000)) + b"}",
    b'{"metadata":{"name":"a"},"data":' + b'{"a":' * 300 + b"1" + b"}" * 301,
)  # fmt: skip
_REVIEW_FIELDS = (
    *(
        "token",
        "user",
        "groups",
        "resourceAttributes",
        "nonResourceAttributes",
        "namespace",
        "audiences",
        "extra",
        "uid",
    ),
    *("expirationSeconds", "boundObjectRef"),
)
_POINTERS = ("metadata", "labels", "spec", "data", "a", "0", "-", "-1", "99", "~1", "~", "", "status", "containers")
_DIRECTIVES = (
    *("$patch", "$retainKeys", "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers"),
    *("$setElementOrder/", "$setElementOrder/ports", "$deleteFromPrimitiveList/"),
)


@dataclass
class RequestFuzzer:
    random: Random
    kinds: Sequence[ServedKind]

    def request(self) -> FuzzedRequest:
        headers = {"Accept": self.random.choice(_ACCEPT)}
        if self._one_in(50):
            headers[self._any_of("Impersonate-User", "Impersonate-Group", "Impersonate-Extra-a", "If-Match")] = "a"
        if self._one_in(50):
            headers["Authorization"] = self._any_of("", "Bearer", "Bearer x", "Basic YTpi", "Bearer a.b.c")
        method = self.random.choice(_ODD_METHODS if self._one_in(50) else _METHODS)
        kind = self.random.choice(self.kinds)
        if self._one_in(10):
            path = self.random.choice(_OTHER_PATHS)
            body = self._raw() if self._one_in(3) else _encode(self._review())
        else:
            path = self._path(kind, method)
            body = self._body(kind, method)
        if method in {"GET", *_ODD_METHODS}:
            return FuzzedRequest(method, path + self._query(), headers)
        headers["Content-Type"] = self._content_type(method)
        query = self._query() if self._one_in(4) else "?fieldManager=a"
        return FuzzedRequest(method, path + query, headers, body)

    def _path(self, kind: ServedKind, method: str) -> str:
        namespace = self.random.choice(_NAMESPACES) if self._one_in(10) else "default"
        path = kind.path.replace("{namespace}", namespace)
        if method != "POST" or self._one_in(5):
            path += "/" + (self.random.choice(_NAMES) if self._one_in(10) else self._own_name(kind))
            if self._one_in(4):
                path += "/" + self.random.choice(_SUBRESOURCES)
        return path

    def _query(self) -> str:
        names = self.random.choices(_PARAMETERS, k=self.random.randrange(4))
        values = [self.random.choice(_TEXTS if self._one_in(3) else _ARGUMENTS) for _ in names]
        pairs = [f"{name}={quote(value, errors='replace')}" for name, value in zip(names, values, strict=True)]
        return "?" + "&".join(pairs) if pairs else ""

    def _content_type(self, method: str) -> str:
        if self._one_in(10):
            return self.random.choice(_CONTENT_TYPES)
        fitting = (MERGE, STRATEGIC, JSON_PATCH, APPLY) if method == "PATCH" else (JSON, JSON, YAML)
        return self.random.choice(fitting)

    # Bodies

    def _body(self, kind: ServedKind, method: str) -> bytes:
        if self._one_in(15):
            return self._raw()
        if method == "DELETE":
            return _encode(self._delete_options())
        if method == "PATCH" and not self._one_in(3):
            return _encode(self._json_patch() if self._one_in(2) else self._strategic_patch(kind))
        text = _encode(self._object(kind))
        if text[:2] == b'{"' and self._one_in(20):
            return b'{"metadata":{"name":"a"},"spec":5,' + text[1:]  # a key twice
        return text

    def _raw(self) -> bytes:
        return self.random.randbytes(self.random.randrange(60)) if self._one_in(5) else self.random.choice(_RAW)

    def _object(self, kind: ServedKind) -> Any:
        """Three in four are a valid object with up to three mutations; the others have arbitrary fields of the
        schema."""
        identity = {} if self._one_in(10) else {"apiVersion": kind.api_version, "kind": kind.kind}
        valid = _valid_objects().get(kind.kind)
        if valid is None or self._one_in(4):
            properties = {name: one for name, one in kind.schema.get("properties", {}).items() if name != "metadata"}
            obj = self._of_properties({**kind.schema, "properties": properties}, kind, 0)
            return {**obj, **identity, "metadata": self._metadata(kind)}
        metadata = self._metadata(kind) if self._one_in(10) else {"name": self._own_name(kind)}
        mutated = copy.deepcopy({**identity, "metadata": metadata, **valid})
        for _ in range(self._any_of(0, 0, 0, 1, 1, 2, 3)):
            if paths := [path for path in paths_in(mutated) if path]:
                self._mutate(mutated, self.random.choice(paths))
        return mutated

    def _own_name(self, kind: ServedKind) -> str:
        return "a.fuzzed.example.com" if kind.kind == "CustomResourceDefinition" else self.random.choice("aab")

    def _mutate(self, value: Any, path: Sequence[str | int]) -> None:
        *above, last = path
        parent = value
        for step in above:
            parent = parent[step]
        match self._any_of("replace", "replace", "replace", "remove", "add", "repeat", "multiply"):
            case "remove":
                del parent[last]
            case "add" if isinstance(parent, dict):
                parent[self._text()] = self._anything()
            case "repeat" if isinstance(parent, list):
                parent.extend(copy.deepcopy(parent))
            case "multiply" if isinstance(parent, list):
                parent[:] = [copy.deepcopy(parent[number % len(parent)]) for number in range(self._count(parent))]
            case "multiply":
                parent |= {f"{last}{number}": copy.deepcopy(parent[last]) for number in range(self._count(parent))}
            case _:
                parent[last] = self._anything()

    def _count(self, value: Any) -> int:
        """The body becomes no longer than `_LONG`: there the time of what is quadratic would show."""
        return min(self.random.choice((3, 40, 300, 2000)), _LONG // len(_encode(value)))

    def _metadata(self, kind: ServedKind) -> Any:
        if self._one_in(10):
            return self._anything()
        metadata: dict[str, Any] = {"name": self._own_name(kind)}
        choices: dict[str, Callable[[], Any]] = {
            "name": self._text,
            "namespace": self._text,
            "labels": lambda: {self._text(): self._text()},
            "annotations": lambda: {self._text(): self._text()},
            "resourceVersion": self._text,
            "uid": self._text,
            "finalizers": lambda: [self._text(), "example.com/x"],
            "generateName": self._text,
            "managedFields": lambda: [
                {"manager": "a", "operation": "Apply", "apiVersion": "v1", "fieldsV1": self._anything()}
            ],
            "ownerReferences": lambda: [
                {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": self._text(), "controller": self._anything()}
            ],
            "creationTimestamp": self._anything,
            "deletionTimestamp": self._anything,
        }
        for name in self.random.choices(list(choices), k=self.random.randrange(4)):
            metadata[name] = self._anything() if self._one_in(4) else choices[name]()
        return metadata

    def _of_schema(self, schema: Mapping[str, Any], kind: ServedKind, depth: int) -> Any:
        """A value of the schema; one in ten is of any type."""
        if self._one_in(10):
            return self._anything()
        for part in schema.get("allOf", ()):
            if "$ref" in part:
                schema = kind.schemas[part["$ref"].rpartition("/")[2]]
        if schema.get("enum"):
            return self.random.choice(schema["enum"])
        match schema.get("type"):
            case "array":
                count = self.random.randrange(3) if depth < 8 else 0
                return [self._of_schema(schema.get("items") or {}, kind, depth + 1) for _ in range(count)]
            case "object" if schema.get("properties"):
                return self._of_properties(schema, kind, depth)
            case "object":
                values = schema.get("additionalProperties")
                inner = values if isinstance(values, dict) else {}
                count = self.random.randrange(3) if depth < 8 else 0
                return {self._text(): self._of_schema(inner, kind, depth + 1) for _ in range(count)}
            case "string":
                return self._text()
            case "integer" | "number":
                return self.random.choice(_NUMBERS)
            case "boolean":
                return self._any_of(True, False)
            case _:
                return self._anything()

    def _of_properties(self, schema: Mapping[str, Any], kind: ServedKind, depth: int) -> dict[str, Any]:
        properties = schema["properties"]
        names = [name for name in schema.get("required", ()) if name in properties]
        if properties:
            names += self.random.choices(list(properties), k=self.random.randrange(5 if depth < 4 else 2))
        fields = {name: self._of_schema(properties[name], kind, depth + 1) for name in names}
        return fields | ({self._text(): self._anything()} if self._one_in(10) else {})

    def _json_patch(self) -> Any:
        return [self._operation() for _ in range(self.random.randrange(5))]

    def _operation(self) -> Any:
        if self._one_in(10):
            return self._anything()
        name = self._any_of("add", "replace", "remove", "test", "copy", "move", "ADD", "")
        operation = {"op": self._anything() if self._one_in(10) else name, "path": self._pointer()}
        return operation | self._any_of({}, {"value": self._anything()}, {"from": self._pointer()})

    def _pointer(self) -> Any:
        if self._one_in(10):
            return self._anything()
        return "/" + "/".join(self.random.choices(_POINTERS, k=self.random.randrange(1, 5)))

    def _strategic_patch(self, kind: ServedKind) -> Any:
        patch = self._object(kind)
        places = [patch, *(one for path in paths_in(patch) if isinstance(one := _at(patch, path), dict))]
        value = self._any_of("delete", "replace", "merge", self._anything())
        self.random.choice(places)[self.random.choice(_DIRECTIVES)] = value
        return patch

    def _delete_options(self) -> Any:
        options = {"kind": "DeleteOptions", "apiVersion": "v1"}
        names = ("gracePeriodSeconds", "propagationPolicy", "orphanDependents", "preconditions", "dryRun", "kind")
        for name in self.random.choices(names, k=self.random.randrange(3)):
            options[name] = self._anything()
        return options

    def _review(self) -> Any:
        names = self.random.choices(_REVIEW_FIELDS, k=self.random.randrange(4))
        spec = self._anything() if self._one_in(10) else {name: self._anything() for name in names}
        return {"spec": spec} | self._any_of(
            {}, {"kind": self._text()}, {"metadata": self._anything()}, {"target": spec}
        )

    # Values

    def _anything(self) -> Any:
        match self.random.randrange(6):
            case 0:
                return self._any_of(None, True, False)
            case 1:
                return self.random.choice(_NUMBERS)
            case 2 | 3:
                return self._text()
            case 4:
                return copy.deepcopy(self.random.choice(_SHAPES))
            case _:
                return nested(self.random.randrange(1, 200)) if self._one_in(4) else {self._text(): self._text()}

    def _text(self) -> str:
        if self._one_in(5):
            return "".join(chr(self.random.randrange(1, 0x3000)) for _ in range(self.random.randrange(8)))
        return self.random.choice(_TEXTS)

    def _any_of(self, *values: Any) -> Any:
        return self.random.choice(values)

    def _one_in(self, number: int) -> bool:
        return self.random.randrange(number) == 0


def _at(value: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value


def _encode(value: Any) -> bytes:
    return json.dumps(value).encode()


@cache
def _valid_objects() -> dict[str, Any]:
    objects: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("valid_objects.yaml").read_text())
    return objects
