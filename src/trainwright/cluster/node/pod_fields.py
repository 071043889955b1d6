"""The downward API: values of a pod's fields and resources, for environment variables and files."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

from trainwright.cluster.node.referenced_objects import PodConfigError
from trainwright.objects import Object
from trainwright.objects.quantities import parse_quantity

_SUBSCRIPT = re.compile(r"metadata\.(?P<map>labels|annotations)\['(?P<key>.+)'\]", re.DOTALL)
_ESCAPES = dict(zip('"\\\a\b\f\n\r\t\v', (f"\\{letter}" for letter in '"\\abfnrtv'), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFields:
    """What the node determines: values of fields by path, and the amounts that a container without limits may use."""

    values: Mapping[str, str] = field(default_factory=dict)
    allocatable: Mapping[str, Fraction] = field(default_factory=dict)


def field_value(pod: Object, path: str, node: NodeFields) -> str:
    """The value of a fieldRef; raises PodConfigError."""
    metadata = pod["metadata"]
    if path in {"metadata.name", "metadata.namespace", "metadata.uid"}:
        return str(metadata.get(path.removeprefix("metadata."), ""))
    if path in {"metadata.labels", "metadata.annotations"}:
        return format_map(metadata.get(path.removeprefix("metadata.")) or {})
    if match := _SUBSCRIPT.fullmatch(path):
        return str((metadata.get(match["map"]) or {}).get(match["key"], ""))
    if path == "spec.serviceAccountName":
        return service_account_of(pod)
    if path in node.values:
        return node.values[path]
    raise PodConfigError(f"unsupported fieldPath: {path}")


def service_account_of(pod: Object) -> str:
    return str(pod["spec"].get("serviceAccountName") or "default")


def resource_value(reference: Object, container: Object | None, pod: Object, node: NodeFields) -> str:
    """The value of a resourceFieldRef; raises PodConfigError. `container` is its default."""
    if name := reference.get("containerName"):
        containers = [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]
        container = next((other for other in containers if other["name"] == name), None)
    if container is None:
        raise PodConfigError(f"container {name} not found")
    kind, _, resource = str(reference["resource"]).partition(".")
    if kind not in {"limits", "requests"} or not _is_known(resource):
        raise PodConfigError(f"unsupported container resource : {reference['resource']}")
    amount = parse_quantity(((container.get("resources") or {}).get(kind) or {}).get(resource) or "0")
    if not amount and kind == "limits":
        amount = node.allocatable.get(resource, Fraction(0))
    divisor = parse_quantity(reference.get("divisor") or "1") or Fraction(1)
    return str(ceil(amount / divisor))


def _is_known(resource: str) -> bool:
    return resource in {"cpu", "memory", "ephemeral-storage"} or resource.startswith("hugepages-")


def format_map(entries: Mapping[str, str]) -> str:
    """Labels or annotations as the kubelet writes them: one `key="value"` per line, sorted by key."""
    return "\n".join(f"{key}={quote(str(value))}" for key, value in sorted(entries.items()))


def quote(text: str) -> str:
    """Go's strconv.Quote."""
    return '"' + "".join(_quoted(character) for character in text) + '"'


def _quoted(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    if character == " " or character.isprintable():
        return character
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
