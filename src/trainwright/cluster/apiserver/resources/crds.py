"""CustomResourceDefinitions: their strategy, and the resource types of the custom resources that they define."""

from collections.abc import Iterator
from typing import Any

from trainwright.cluster.apiserver.resources.columns.jsonpath import JsonPathError, compile_path
from trainwright.cluster.apiserver.resources.columns.printer_columns import custom_columns
from trainwright.cluster.apiserver.resources.resource_type import ResourceType, ScalePaths, Strategy
from trainwright.cluster.apiserver.schema.builtin import definition
from trainwright.cluster.apiserver.schema.decoding import ObjectSchema
from trainwright.cluster.apiserver.schema.structural import Schema, unenforced_rules
from trainwright.cluster.apiserver.schema.value_validation import PatternError, compile_pattern
from trainwright.objects import Object
from trainwright.objects.field_errors import FieldError, forbidden, invalid, not_supported, required
from trainwright.objects.names import dns_subdomain_problem
from trainwright.objects.resources import Resource

_CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
"""Keeps a deleted CRD until its last custom resource is removed."""

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")


def types_of(crd: Object) -> list[ResourceType]:
    """One resource type per served version."""
    spec = crd["spec"]
    names = spec["names"]
    storage = next(version["name"] for version in spec["versions"] if version["storage"])
    return [
        ResourceType(
            resource=Resource(
                spec["group"], version["name"], names["plural"], names["kind"], namespaced=spec["scope"] == "Namespaced"
            ),
            singular=names["singular"],
            list_kind=names["listKind"],
            schema=ObjectSchema(_root_schema(version), definition),
            columns=custom_columns(version.get("additionalPrinterColumns") or []),
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=frozenset(version.get("subresources") or ()),
            custom=True,
            storage_version=storage,
            scale=_scale_paths(version),
            counts_generation=True,
            warning=_deprecation(spec["group"], names["kind"], version),
        )
        for version in spec["versions"]
        if version["served"]
    ]


def _unenforced_rule_warnings(crd: Object) -> list[str]:
    """One warning per CEL rule that this server does not evaluate."""
    return [
        f"spec.versions[{index}]: the validation rule {rule!r} at {path} is not enforced by this server "
        "(it evaluates only self == oldSelf outside lists); the rest of the schema is"
        for index, version in enumerate(crd["spec"].get("versions") or ())
        for path, rule in unenforced_rules(_root_schema(version))
    ]


def with_cleanup_finalizer(crd: Object, *, needed: bool) -> Object:
    """The CRD with the finalizer that keeps it until its custom resources are removed, or without it."""
    finalizers = [name for name in crd["metadata"].get("finalizers") or [] if name != _CLEANUP_FINALIZER]
    if needed:
        finalizers.append(_CLEANUP_FINALIZER)
    return crd | {"metadata": crd["metadata"] | {"finalizers": finalizers}}


def _root_schema(version: Object) -> Schema:
    return (version.get("schema") or {}).get("openAPIV3Schema") or {}


def _scale_paths(version: Object) -> ScalePaths | None:
    scale = (version.get("subresources") or {}).get("scale")
    if not scale:
        return None
    selector = scale.get("labelSelectorPath")
    return ScalePaths(
        _dotted(scale["specReplicasPath"]),
        _dotted(scale["statusReplicasPath"]),
        _dotted(selector) if selector else None,
    )


def _dotted(path: str) -> tuple[str, ...]:
    return tuple(filter(None, path.split(".")))


def _deprecation(group: str, kind: str, version: Object) -> str:
    if not version.get("deprecated"):
        return ""
    return str(version.get("deprecationWarning") or f"{group}/{version['name']} {kind} is deprecated")


def _set_defaults(crd: Object) -> None:
    spec = crd.setdefault("spec", {})
    names = spec.setdefault("names", {})
    if kind := names.get("kind"):
        names.setdefault("singular", kind.lower())
        names.setdefault("listKind", f"{kind}List")
    spec.setdefault("conversion", {"strategy": "None"})
    for version in spec.get("versions") or ():
        for column in version.get("additionalPrinterColumns") or ():
            if column.get("priority") == 0:
                del column["priority"]


def _prepare_for_create(crd: Object) -> None:
    """Sets the conditions at once, because clients wait for Established right after creation."""
    moment = crd["metadata"]["creationTimestamp"]
    crd["status"] = {
        "conditions": [
            {
                "lastTransitionTime": moment,
                "message": "no conflicts found",
                "reason": "NoConflicts",
                "status": "True",
                "type": "NamesAccepted",
            },
            {
                "lastTransitionTime": moment,
                "message": "the initial names have been accepted",
                "reason": "InitialNamesAccepted",
                "status": "True",
                "type": "Established",
            },
        ],
        "acceptedNames": crd["spec"].get("names", {}),
        "storedVersions": _storage_versions(crd),
    }


def _storage_versions(crd: Object) -> list[str]:
    return [version.get("name", "") for version in crd["spec"].get("versions") or () if version.get("storage")]


def _prepare_for_update(new: Object, old: Object) -> None:
    status = dict(old.get("status") or {})
    status["acceptedNames"] = new["spec"].get("names", {})
    status["storedVersions"] = list(dict.fromkeys([*status.get("storedVersions", []), *_storage_versions(new)]))
    new["status"] = status


def _validate(crd: Object) -> list[FieldError]:
    spec = crd["spec"]
    found = _name_errors(crd)
    versions = spec.get("versions") or []
    if not versions:
        found.append(required("spec.versions"))
    for index, version in enumerate(versions):
        found += _version_errors(version, f"spec.versions[{index}]")
    names = [version.get("name") for version in versions]
    if versions and sum(bool(version.get("storage")) for version in versions) != 1:
        found.append(invalid("spec.versions", names, "must have exactly one version marked as storage version"))
    if len(set(names)) != len(names):
        found.append(invalid("spec.versions", names, "must contain unique version names"))
    found += _conversion_errors(spec.get("conversion") or {})
    if not isinstance(crd.get("status"), dict):
        crd["status"] = {}
    return found


def _conversion_errors(conversion: Object) -> list[FieldError]:
    path, strategy = "spec.conversion.strategy", conversion.get("strategy", "None")
    if strategy == "Webhook":
        return [forbidden(path, "this server does not call conversion webhooks; use None")]
    return [] if strategy == "None" else [not_supported(path, strategy, ("None", "Webhook"))]


def _name_errors(crd: Object) -> list[FieldError]:
    spec, names = crd["spec"], crd["spec"]["names"]
    found = []
    if not spec.get("group"):
        found.append(required("spec.group"))
    elif problem := dns_subdomain_problem(spec["group"]):
        found.append(invalid("spec.group", spec["group"], problem))
    elif "." not in spec["group"]:
        found.append(invalid("spec.group", spec["group"], "should be a domain with at least one dot"))
    found += [required(f"spec.names.{field}") for field in ("plural", "kind") if not names.get(field)]
    expected = f"{names.get('plural', '')}.{spec.get('group', '')}"
    if crd["metadata"].get("name") != expected:
        name = crd["metadata"].get("name", "")
        found.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    if not spec.get("scope"):
        found.append(required("spec.scope"))
    elif spec["scope"] not in {"Cluster", "Namespaced"}:
        found.append(not_supported("spec.scope", spec["scope"], ("Cluster", "Namespaced")))
    return found


def _version_errors(version: Object, path: str) -> list[FieldError]:
    found = [required(f"{path}.name")] if not version.get("name") else []
    # Go reads a missing boolean as false and writes it out.
    version.setdefault("served", False)
    version.setdefault("storage", False)
    schema = _root_schema(version)
    if not schema:
        found.append(required(f"{path}.schema.openAPIV3Schema", "schemas are required"))
    else:
        found += _structural_errors(schema, f"{path}.schema.openAPIV3Schema")
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        found += _column_errors(column, f"{path}.additionalPrinterColumns[{index}]")
    scale = (version.get("subresources") or {}).get("scale")
    if scale is not None:
        needed = ("specReplicasPath", "statusReplicasPath")
        found += [required(f"{path}.subresources.scale.{field}") for field in needed if not scale.get(field)]
    return found


def _column_errors(column: Object, path: str) -> list[FieldError]:
    found = [required(f"{path}.{field}") for field in ("name", "type", "jsonPath") if not column.get(field)]
    if column.get("type") and column["type"] not in _COLUMN_TYPES:
        found.append(not_supported(f"{path}.type", column["type"], _COLUMN_TYPES))
    if column.get("jsonPath"):
        try:
            compile_path(column["jsonPath"])
        except JsonPathError as error:
            found.append(invalid(f"{path}.jsonPath", column["jsonPath"], str(error)))
    return found


def _structural_errors(schema: Any, path: str) -> list[FieldError]:
    """Every field needs a type or an extension that allows any type; patterns must compile."""
    if not isinstance(schema, dict):
        return []
    found = []
    untyped = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-int-or-string")
    if not schema.get("type") and not untyped:
        found.append(required(f"{path}.type", "must not be empty for specified object fields"))
    found += _pattern_errors(schema, path)
    for name, sub in (schema.get("properties") or {}).items():
        found += _structural_errors(sub, f"{path}.properties[{name}]")
    for keyword in ("items", "additionalProperties"):
        found += _structural_errors(schema.get(keyword), f"{path}.{keyword}")
    return found


def _pattern_errors(schema: Any, path: str) -> Iterator[FieldError]:
    """Those of the schema itself and of its combinations, whose fields need no types."""
    if not isinstance(schema, dict):
        return
    if pattern := schema.get("pattern"):
        try:
            compile_pattern(pattern)
        except PatternError as error:
            yield invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {error}")
    for keyword in ("allOf", "anyOf", "oneOf"):
        for index, sub in enumerate(schema.get(keyword) or ()):
            yield from _combined_pattern_errors(sub, f"{path}.{keyword}[{index}]")
    yield from _combined_pattern_errors(schema.get("not"), f"{path}.not")


def _combined_pattern_errors(schema: Any, path: str) -> Iterator[FieldError]:
    if not isinstance(schema, dict):
        return
    yield from _pattern_errors(schema, path)
    for name, sub in (schema.get("properties") or {}).items():
        yield from _combined_pattern_errors(sub, f"{path}.properties[{name}]")
    yield from _combined_pattern_errors(schema.get("items"), f"{path}.items")


CRD_STRATEGY = Strategy(
    set_defaults=_set_defaults,
    prepare_for_create=_prepare_for_create,
    prepare_for_update=_prepare_for_update,
    validate=_validate,
    warnings=_unenforced_rule_warnings,
)
