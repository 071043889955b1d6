"""The fields of Kubernetes' API in versions whose API server the tests do not build. `make kubernetes` fetches them."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainwright.objects import Object

_SCALARS: dict[str, tuple[type, ...]] = {"string": (str,), "numeric": (int, float), "boolean": (bool,)}
_OPEN_GO_TYPES = {"JSON", "metav1.ObjectMeta", "metav1.TypeMeta", "string", "bool", "int32", "int64", "float64"}
_WRAPPERS = {
    "JSONSchemaPropsOrArray": "JSONSchemaProps",
    "JSONSchemaPropsOrBool": "JSONSchemaProps",
    "JSONSchemaPropsOrStringArray": "JSONSchemaProps",
    "JSONSchemaDefinitions": "map[string]JSONSchemaProps",
}


def versions() -> list[Path]:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainwright" / "api-schemas"
    found = sorted(mark.parent for mark in cache.glob("*/complete"))
    if not found:
        raise RuntimeError(f"no schemas below {cache}: run `make kubernetes`")
    return found


@dataclass(frozen=True)
class ApiSchema:
    """The types of one version of Kubernetes: built-in ones as server-side apply has them, CRDs as Go declares them."""

    builtin: dict[str, Object]
    crds: dict[str, dict[str, str]]

    @classmethod
    def read(cls, directory: Path) -> "ApiSchema":
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        types = yaml.load((directory / "types.yaml").read_text(), loader)["types"]  # noqa: S506 (a safe loader)
        return cls({one["name"]: one for one in types}, _go_structs((directory / "crds.go").read_text()))

    def errors(self, obj: Object) -> list[str]:
        """The paths of fields that the version does not know, or that have another type there."""
        if obj["kind"] == "CustomResourceDefinition":
            meta = {"namedType": "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
            return [
                *self._errors(meta, obj["metadata"], ".metadata"),
                *self._go_errors("CustomResourceDefinitionSpec", obj["spec"], ".spec"),
            ]
        group, _, version = obj["apiVersion"].rpartition("/")
        name = f"io.k8s.api.{group.split('.')[0] or 'core'}.{version}.{obj['kind']}"
        return self._errors({"namedType": name}, obj, "") if name in self.builtin else [f"no {name}"]

    def _errors(self, kind: Object, value: Any, path: str) -> list[str]:
        name = kind.get("namedType", "")
        if name.startswith("__untyped") or value is None:
            return []
        kind = self.builtin[name] if name else kind
        if isinstance(value, dict) and "map" in kind:
            fields = {one["name"]: one["type"] for one in kind["map"].get("fields", ())}
            other = kind["map"].get("elementType")
            if unknown := [f"{path}.{key}" for key in value if key not in fields and other is None]:
                return unknown
            parts = ((fields.get(key, other), one, f"{path}.{key}") for key, one in value.items())
        elif isinstance(value, list) and "list" in kind:
            parts = ((kind["list"]["elementType"], one, f"{path}[{n}]") for n, one in enumerate(value))
        else:
            scalar = kind.get("scalar")
            fits = scalar is None or isinstance(value, _SCALARS.get(scalar, (object,)))
            return [] if fits and not isinstance(value, dict | list) else [f"{path}: {value!r} is not of {kind}"]
        return [error for one in parts for error in self._errors(*one)]

    def _go_errors(self, go_type: str, value: Any, path: str) -> list[str]:
        go_type = _WRAPPERS.get(go_type.lstrip("*"), go_type.lstrip("*"))
        if go_type.startswith("[]"):
            return [error for one in value for error in self._go_errors(go_type[2:], one, f"{path}[]")]
        if go_type.startswith("map[string]"):
            inner = go_type.removeprefix("map[string]")
            return [error for key, one in value.items() for error in self._go_errors(inner, one, f"{path}.{key}")]
        if go_type not in self.crds or go_type in _OPEN_GO_TYPES or not isinstance(value, dict):
            return []
        fields = self.crds[go_type]
        unknown = [f"{path}.{key}" for key in value if key not in fields]
        known = [(fields[key], one, f"{path}.{key}") for key, one in value.items() if key in fields]
        return unknown + [error for one in known for error in self._go_errors(*one)]


def _go_structs(source: str) -> dict[str, dict[str, str]]:
    """The fields of each struct: JSON name and Go type."""
    structs = re.findall(r"^type (\w+) struct \{\n(.*?)^\}", source, re.MULTILINE | re.DOTALL)
    field = re.compile(r'^\s+\w+\s+(\S+)\s+`json:"([\w$-]+)', re.MULTILINE)
    return {name: {tag: go_type for go_type, tag in field.findall(body)} for name, body in structs}
