"""Where a field is in the text of its manifest. Only needed after an error: the text is parsed a second time."""

from dataclasses import dataclass

import yaml

from trainwright.objects.yaml_documents import Loader

_ARROW = "^"


@dataclass(frozen=True, slots=True)
class Position:
    """Both count from 1."""

    line: int
    column: int


def find_field(text: str, document_line: int, path: str) -> Position | None:
    """The key of the field at `path`, such as `spec.replicas[Worker].containers[0].image`.

    For a field that is missing it is the nearest field above it; None if the document is not found. `document_line` is
    where the document begins.
    """
    root = _document(text, document_line)
    if root is None:
        return None
    mark, node, rest = root.start_mark, root, path
    while rest:
        step = _step(node, rest)
        if step is None:
            break
        mark, node, rest = step
    return Position(mark.line + 1, mark.column + 1)


def pointer(text: str, position: Position) -> list[str]:
    """The line of the manifest, and a caret below the column."""
    lines = text.splitlines()
    if not 0 < position.line <= len(lines):
        return []
    number = str(position.line)
    line = lines[position.line - 1].replace("\t", " ")
    return [f"  {number} | {line}", f"  {' ' * len(number)} | {' ' * (position.column - 1)}{_ARROW}"]


def _document(text: str, line: int) -> yaml.Node | None:
    loader = Loader(text.replace("\t", " "))  # JSON may be indented with tabs
    try:
        while loader.check_node():
            node: yaml.Node | None = loader.get_node()
            if node is not None and node.start_mark.line + 1 >= line:
                return node
    except yaml.YAMLError:
        return None
    finally:
        loader.dispose()
    return None


def _step(node: yaml.Node, path: str) -> tuple[yaml.Mark, yaml.Node, str] | None:
    """Mark and value of the first field of the path, and the rest of the path."""
    path = path.removeprefix(".")
    if isinstance(node, yaml.SequenceNode):
        index, _, rest = path.removeprefix("[").partition("]")
        if path.startswith("[") and index.isdecimal() and int(index) < len(node.value):
            item = node.value[int(index)]
            return item.start_mark, item, rest
    if isinstance(node, yaml.MappingNode):
        # Keys may contain dots: the longest one that fits is meant.
        for key, value in sorted(node.value, key=lambda pair: -len(str(pair[0].value))):
            for written in (f"[{key.value}]", key.value):
                rest = path.removeprefix(written)
                if path.startswith(written) and (not rest or rest[0] in ".["):
                    return key.start_mark, value, rest
    return None


@dataclass(frozen=True, slots=True)
class Place:
    """An object in a manifest: the file, the line and text of the document, and the path of the object in it."""

    source: str
    line: int
    text: str = ""
    path: str = ""

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source

    def item(self, index: int) -> "Place":
        """An object of a List."""
        return Place(self.source, self.line, self.text, f"{self.path}items[{index}].")

    def error(self, path: str, message: str, *, title: str = "") -> str:
        """`job.yaml:12:7: message` with the line of the manifest; without a position, `title` names the object."""
        position = find_field(self.text, self.line, f"{self.path}{path}") if self.text and path else None
        if position is None:
            return f"{self}: {title}{message}"
        where = f"{self.source}:{position.line}:{position.column}"
        return "\n".join([f"{where}: {message}", *pointer(self.text, position)])
