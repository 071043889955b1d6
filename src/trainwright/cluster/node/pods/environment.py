"""The environment variables of a container by Kubernetes' rules: envFrom, env, valueFrom and expansion of $(NAME)."""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import ceil

from trainwright.cluster.node.referenced_objects import (
    PodConfigError,
    ReferencedObjects,
    config_map_data,
    missing,
    secret_data,
)
from trainwright.objects import Object
from trainwright.objects.quantities import parse_quantity

_REFERENCE = re.compile(r"\$(?:\$|\((?P<name>[^)]*)\))")
_SUBSCRIPT = re.compile(r"metadata\.(?P<map>labels|annotations)\['(?P<key>[^']+)'\]")


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replaces $(NAME). $$ is a dollar sign, and an undefined $(NAME) stays as it is."""

    def replacement(match: re.Match[str]) -> str:
        name = match["name"]
        return "$" if name is None else values.get(name, match[0])

    return _REFERENCE.sub(replacement, text)


def make_environment(
    container: Object,
    *,
    pod: Object,
    objects: ReferencedObjects,
    node: Mapping[str, str],
    allocatable: Mapping[str, Fraction],
    adapt: Callable[[str], str] = lambda value: value,
) -> dict[str, str]:
    """The variables of `env` and `envFrom`; raises PodConfigError.

    `node` has the values of fieldRefs that the node determines. `adapt` changes each value before later variables
    refer to it.
    """
    variables: dict[str, str] = {}
    for source in container.get("envFrom") or []:
        for name, text in _all_keys(source, pod, objects).items():
            variables[f"{source.get('prefix', '')}{name}"] = adapt(text)
    for variable in container.get("env") or []:
        value = _value(variable, container=container, pod=pod, objects=objects, node=node, allocatable=allocatable)
        if value is not None:
            variables[variable["name"]] = adapt(expand(value, variables) if "valueFrom" not in variable else value)
    return variables


def _value(
    variable: Object,
    *,
    container: Object,
    pod: Object,
    objects: ReferencedObjects,
    node: Mapping[str, str],
    allocatable: Mapping[str, Fraction],
) -> str | None:
    reference = variable.get("valueFrom")
    if not reference:
        return str(variable.get("value") or "")
    if "configMapKeyRef" in reference:
        return _one_key("ConfigMap", reference["configMapKeyRef"], objects.config_maps, config_map_data, pod)
    if "secretKeyRef" in reference:
        return _one_key("Secret", reference["secretKeyRef"], objects.secrets, secret_data, pod)
    if "fieldRef" in reference:
        return field_value(pod, str(reference["fieldRef"].get("fieldPath")), node)
    if "resourceFieldRef" in reference:
        return _resource_value(reference["resourceFieldRef"], container, pod, allocatable)
    raise PodConfigError(f'env "{variable["name"]}": valueFrom.{next(iter(reference))} is not supported on this node')


def field_value(pod: Object, path: str, node: Mapping[str, str]) -> str:
    metadata = pod["metadata"]
    if path in {"metadata.name", "metadata.namespace", "metadata.uid"}:
        return str(metadata.get(path.removeprefix("metadata."), ""))
    if match := _SUBSCRIPT.fullmatch(path):
        return str((metadata.get(match["map"]) or {}).get(match["key"], ""))
    if path == "spec.serviceAccountName":
        return str(pod["spec"].get("serviceAccountName") or "default")
    if path in node:
        return node[path]
    raise PodConfigError(f"fieldRef {path} is not supported on this node")


def _all_keys(source: Object, pod: Object, objects: ReferencedObjects) -> dict[str, str]:
    from_config_map = "configMapRef" in source
    kind, field_name = ("configmap", "configMapRef") if from_config_map else ("secret", "secretRef")
    read = config_map_data if from_config_map else secret_data
    reference = source.get(field_name) or {}
    found = (objects.config_maps if from_config_map else objects.secrets).get(reference.get("name", ""))
    if found is None:
        if reference.get("optional"):
            return {}
        raise missing(kind, reference.get("name", ""), pod["metadata"]["namespace"])
    return {key: value.decode(errors="surrogateescape") for key, value in read(found).items()}


def _one_key(
    kind: str,
    reference: Object,
    objects: Mapping[str, Object],
    read: Callable[[Object], dict[str, bytes]],
    pod: Object,
) -> str | None:
    name, key = reference.get("name", ""), reference["key"]
    found = objects.get(name)
    if found is None:
        if reference.get("optional"):
            return None
        raise missing(kind.lower(), name, pod["metadata"]["namespace"])
    value = read(found).get(key)
    if value is None:
        if reference.get("optional"):
            return None
        keys = ", ".join(sorted(read(found))) or "none"
        raise PodConfigError(f"couldn't find key {key} in {kind} {pod['metadata']['namespace']}/{name}: it has {keys}")
    return value.decode(errors="surrogateescape")


def _resource_value(reference: Object, container: Object, pod: Object, allocatable: Mapping[str, Fraction]) -> str:
    name = reference.get("containerName")
    if name and name != container["name"]:
        containers = (pod["spec"].get("initContainers") or []) + pod["spec"]["containers"]
        container = next((other for other in containers if other["name"] == name), container)
    kind, _, resource = str(reference["resource"]).partition(".")
    amounts = (container.get("resources") or {}).get(kind) or {}
    amount = parse_quantity(amounts[resource]) if resource in amounts else Fraction(0)
    if resource not in amounts and kind == "limits":
        amount = allocatable.get(resource, Fraction(0))
    divisor = parse_quantity(reference.get("divisor") or "1")
    return str(ceil(amount / (divisor or 1)))
