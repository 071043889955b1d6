"""YAML as Kubernetes reads it: the types of JSON, and no document whose aliases expand without end."""

import re
from typing import Any, NamedTuple

import yaml

from trainwright.objects.json_numbers import as_go_number

_MAX_DEPTH = 1000
_BASE_SIZE = 10_000
"""Values that a document may have besides one per byte: a few aliases are normal, and each value takes a byte."""
_BASE_CHARACTERS = 1024 * 1024
"""Characters of values that a document may have besides twice its own length: an alias of a long text is as short as
any other."""
_TAG = "tag:yaml.org,2002:"
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?")


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # written in C where available
    """Reads dates and times as strings."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
# The first pattern that matches wins: 12:30:45 is a string, not a number to the base of 60.
for digit in "-+0123456789":
    Loader.yaml_implicit_resolvers[digit] = [
        (f"{_TAG}str", re.compile(rf"(?:{_SEXAGESIMAL.pattern})$")),
        *Loader.yaml_implicit_resolvers.get(digit, []),
    ]


def load_document(text: bytes) -> Any:
    """The value of the only document in `text`; raises yaml.YAMLError or ValueError."""
    check_depth(text)
    loader = Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        size = expanded_size(node)
        if size.values > len(text) + _BASE_SIZE or size.characters > 2 * len(text) + _BASE_CHARACTERS:
            raise yaml.YAMLError("document contains excessive aliasing")
        return _json_value(loader.construct_document(node))
    finally:
        loader.dispose()


def check_depth(text: bytes | str) -> None:
    """Raises yaml.YAMLError for deeply nested documents: composing them is recursive C code, which would crash."""
    depth = 0
    for event in yaml.parse(text, Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MAX_DEPTH:
            raise yaml.YAMLError(f"exceeded max depth of {_MAX_DEPTH}")


class ExpandedSize(NamedTuple):
    """The size of a document whose aliases are replaced by what they refer to."""

    values: int
    characters: int


def expanded_size(root: yaml.Node) -> ExpandedSize:
    sizes: dict[int, ExpandedSize] = {}
    stack: list[tuple[yaml.Node, bool]] = [(root, False)]
    open_nodes: set[int] = set()
    while stack:
        node, visited = stack.pop()
        below = _children(node)
        if visited:
            open_nodes.discard(id(node))
            own = len(node.value) if isinstance(node, yaml.ScalarNode) else 0
            sizes[id(node)] = ExpandedSize(
                1 + sum(sizes[id(child)].values for child in below),
                own + sum(sizes[id(child)].characters for child in below),
            )
        elif id(node) not in sizes:
            if id(node) in open_nodes:
                raise yaml.YAMLError("an anchor contains itself")
            open_nodes.add(id(node))
            stack.append((node, True))
            stack += [(child, False) for child in below]
    return sizes[id(root)]


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _json_value(value: Any) -> Any:
    match value:
        case dict():
            return {_key(key): _json_value(item) for key, item in value.items()}
        case list():
            return [_json_value(item) for item in value]
        case set():
            return dict.fromkeys(map(_key, value))
        case bytes():
            return value.decode(errors="replace")
        case bool() | None | str():
            return value
        case int() | float():
            return as_go_number(value)
        case _:
            raise ValueError(f"a value of type {type(value).__name__} is not possible in JSON")


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else "null" if key is None else str(key)
