"""OpenAPI documents: version 3, which kubectl reads for create, apply, edit and explain, and version 2 for others."""

import hashlib
from typing import Any

from trainwright.cluster.apiserver.http.responses import encode
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.resources.resource_type import ResourceType
from trainwright.cluster.apiserver.schema.builtin import definition
from trainwright.cluster.apiserver.schema.structural import Schema
from trainwright.objects import Object

_PREFIX = "#/components/schemas/"
_V2 = "v2"
_V2_PREFIX = "#/definitions/"
_NOT_IN_V2 = {"oneOf", "anyOf", "not", "nullable"}


_EMPTY_V2_PROTOBUF = b"\x0a\x032.0" + b"\x12\x11" + b"\x0a\x0btrainwright" + b"\x12\x02v1"
_V2_ACCEPT = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
# The requested type with an @ is not a valid media type, so the response has another one.
_V2_CONTENT_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


class OpenApi:
    """Documents are rendered at their first request, and again after a change of the served resources."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._generation = 0
        self._documents: dict[str, bytes] = {}

    def index(self) -> bytes:
        """`/openapi/v3`: the path of each group version's document, with a hash that clients cache by."""
        paths = {}
        for group, versions in self._registry.versions().items():
            for version in versions:
                path = f"apis/{group}/{version}" if group else f"api/{version}"
                digest = hashlib.sha256(self._fingerprint(group, version)).hexdigest()[:32].upper()
                paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}?hash={digest}"}
        return encode({"paths": paths})

    def document(self, path: str) -> bytes | None:
        """The document of `api/v1` or `apis/GROUP/VERSION`."""
        self._forget_outdated()
        if path not in self._documents:
            match path.split("/"):
                case ["api", version]:
                    types = self._types("", version)
                case ["apis", group, version]:
                    types = self._types(group, version)
                case _:
                    return None
            if not types:
                return None
            self._documents[path] = encode(_document(types))
        return self._documents[path]

    def document_v2(self, accept: str) -> tuple[bytes, str]:
        """`/openapi/v2` with its media type.

        kubectl asks for protobuf before it sends a `kind: List`; an empty document leaves validation to the server.
        """
        if _V2_ACCEPT in accept:
            return _EMPTY_V2_PROTOBUF, _V2_CONTENT_TYPE
        self._forget_outdated()
        if _V2 not in self._documents:
            self._documents[_V2] = encode(_swagger(_document(self._registry.types())))
        return self._documents[_V2], "application/json"

    def _forget_outdated(self) -> None:
        if self._generation != self._registry.generation:
            self._documents.clear()
            self._generation = self._registry.generation

    def _types(self, group: str, version: str) -> list[ResourceType]:
        types = self._registry.types()
        return [kind for kind in types if (kind.resource.group, kind.resource.version) == (group, version)]

    def _fingerprint(self, group: str, version: str) -> bytes:
        types = self._types(group, version)
        return encode([[kind.resource.kind, kind.schema.root if kind.custom else ""] for kind in types])


def _document(types: list[ResourceType]) -> Object:
    schemas: dict[str, Schema] = {}
    paths: Object = {}
    for kind in types:
        name = _schema_name(kind)
        schemas[name] = _public(kind, schemas) | {"x-kubernetes-group-version-kind": [_gvk(kind)]}
        paths |= _paths(kind, name)
    return {
        "openapi": "3.0.0",
        "info": {"title": "trainwright", "version": "v1"},
        "paths": paths,
        "components": {"schemas": schemas},
    }


_GUIDE = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_CONVENTIONS = {
    "apiVersion": "APIVersion defines the versioned schema of this representation of an object. Servers should convert "
    "recognized schemas to the latest internal value, and may reject unrecognized values. More info: "
    f"{_GUIDE}#resources",
    "kind": "Kind is a string value representing the REST resource this object represents. Servers may infer this from "
    f"the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: {_GUIDE}#types-kinds",
    "metadata": f"Standard object's metadata. More info: {_GUIDE}#metadata",
}
"""What the fields of every custom resource mean, in the real server's words."""


def _swagger(document: Object) -> Object:
    """The document in version 2, whose schemas can say less."""
    return {
        "swagger": "2.0",
        "info": document["info"],
        "paths": {
            path: {verb: _operation_v2(operation) for verb, operation in verbs.items()}
            for path, verbs in document["paths"].items()
        },
        "definitions": {name: _schema_v2(schema) for name, schema in document["components"]["schemas"].items()},
    }


def _operation_v2(operation: Object) -> Object:
    replies = {}
    for code, reply in operation["responses"].items():
        schema = reply["content"]["application/json"]["schema"]
        replies[code] = {"description": reply["description"], "schema": _schema_v2(schema)}
    parameters = [
        {"name": parameter["name"], "in": parameter["in"], **parameter["schema"]}
        for parameter in operation.get("parameters", ())
    ]
    shown = operation | {"responses": replies, "consumes": ["*/*"], "produces": ["application/json"]}
    return shown | ({"parameters": parameters} if parameters else {})


def _schema_v2(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_schema_v2(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    shown = {key: value for key, value in schema.items() if key not in _NOT_IN_V2}
    if isinstance(shown.get("$ref"), str):
        return {"$ref": shown["$ref"].replace(_PREFIX, _V2_PREFIX)}
    if isinstance(shown.get("properties"), dict):
        shown["properties"] = {name: _schema_v2(field) for name, field in shown["properties"].items()}
    for key in ("items", "additionalProperties", "allOf"):
        if key in shown:
            shown[key] = _schema_v2(shown[key])
    return shown


def _gvk(kind: ResourceType) -> Object:
    return {"group": kind.resource.group, "version": kind.resource.version, "kind": kind.resource.kind}


def _schema_name(kind: ResourceType) -> str:
    group = kind.resource.group
    group = ".".join(reversed(group.split("."))) if kind.custom else f"io.k8s.api.{group.partition('.')[0] or 'core'}"
    return f"{group}.{kind.resource.version}.{kind.resource.kind}"


def _public(kind: ResourceType, schemas: dict[str, Schema]) -> Schema:
    if not kind.custom:
        return _referring(kind.schema.root, schemas)
    schema = dict(kind.schema.root)
    properties = dict(schema.get("properties") or {})
    metadata = _referring({"$ref": "ObjectMeta"}, schemas)
    properties["metadata"] = metadata | {"description": _CONVENTIONS["metadata"]}
    for name in ("apiVersion", "kind"):
        properties[name] = {"type": "string", "description": _CONVENTIONS[name]} | (properties.get(name) or {})
    return schema | {"properties": properties}


def _referring(schema: Schema, schemas: dict[str, Schema]) -> Schema:
    """The schema with references into this document; every definition that they reach is added to it."""
    if "$ref" in schema:
        name = schema["$ref"]
        if name not in schemas:
            schemas[name] = {}
            schemas[name] = _referring(definition(name), schemas)
        return {"allOf": [{"$ref": _PREFIX + name}]} | {key: value for key, value in schema.items() if key != "$ref"}
    rendered: Schema = {}
    for key, value in schema.items():
        if key != "schema":  # not OpenAPI: the alternative to a boolean
            rendered[key] = _referring_value(key, value, schemas)
    return rendered


def _referring_value(key: str, value: Any, schemas: dict[str, Schema]) -> Any:
    if key == "properties":
        return {name: _referring(sub, schemas) for name, sub in value.items()}
    if key in {"items", "additionalProperties"} and isinstance(value, dict):
        return _referring(value, schemas)
    return value


def _paths(kind: ResourceType, schema: str) -> Object:
    """The two paths of a resource, with what clients read: verbs, kind, the parameter fieldValidation."""
    gvk = _gvk(kind)
    validation = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    content = {"application/json": {"schema": {"$ref": _PREFIX + schema}}}
    replies = {"200": {"description": "OK", "content": content}}

    def operation(action: str, *, writes: bool) -> Object:
        described: Object = {
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
            "responses": replies,
        }
        return described | ({"parameters": [validation]} if writes else {})

    collection = kind.resource.path("{namespace}" if kind.resource.namespaced else None)
    return {
        collection: {"get": operation("list", writes=False), "post": operation("post", writes=True)},
        f"{collection}/{{name}}": {
            "get": operation("get", writes=False),
            "put": operation("put", writes=True),
            "patch": operation("patch", writes=True),
            "delete": operation("delete", writes=False),
        },
    }
