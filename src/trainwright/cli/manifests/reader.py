"""Reads manifests from files, directories and standard input into objects that remember where they were written.

Everything that can be said about them without a cluster is said here, with file, line and column.
"""

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainwright.cli.errors import Problem
from trainwright.cli.manifests.spelling import nearest
from trainwright.objects import Object

_NO_MISSPELLINGS = {"apiVersion", "kind", "metadata", "spec", "namespace", "generateName"}
_SUFFIXES = (".yaml", ".yml", ".json")
_MOST_VALUES = 200_000
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a manifest. `directory` is that of its file: relative paths of the user mean it."""

    source: str
    line: int
    directory: Path
    object: Object

    @property
    def where(self) -> str:
        return f"{self.source}:{self.line}"

    @property
    def kind(self) -> str:
        return str(self.object["kind"])

    @property
    def api_version(self) -> str:
        return str(self.object["apiVersion"])

    @property
    def name(self) -> str:
        """Its name; what its name will begin with, if the server is to choose one."""
        metadata = self.object["metadata"]
        return str(metadata.get("name") or metadata["generateName"])

    @property
    def namespace(self) -> str | None:
        namespace = self.object["metadata"].get("namespace")
        return str(namespace) if namespace else None


def read_manifests(names: Sequence[str]) -> list[Document]:
    """All objects of all files, in order. `-` is standard input; of a directory its .yaml, .yml and .json files."""
    documents = [document for name in names for document in _read(name)]
    if not documents:
        raise Problem(f"there is no object in {', '.join(names)}")
    _refuse_twins(documents)
    return documents


def parse_manifest(text: str, source: str, directory: Path) -> list[Document]:
    """The objects of one file. Lists (`kind: List`) are unfolded, empty documents left out."""
    found = []
    for line, value in _parse_json(text) or _parse_yaml(text, source):
        if value is None:
            continue
        where = f"{source}:{line}"
        plain = _Plain(where).convert(value)
        found += [Document(source, line, directory, item) for item in _items(plain, where)]
    return found


def _read(name: str) -> Iterator[Document]:
    if name == "-":
        yield from parse_manifest(sys.stdin.read(), "stdin", Path.cwd())
        return
    path = Path(name)
    if not path.is_dir():
        yield from _read_file(path)
        return
    files = sorted(file for file in path.iterdir() if file.suffix in _SUFFIXES and file.is_file())
    if not files:
        raise Problem(f"there are no manifests in the directory {path}: no {', '.join(_SUFFIXES)} files")
    for file in files:
        yield from _read_file(file)


def _read_file(path: Path) -> list[Document]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise Problem(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Problem(f"{path} is not a manifest: byte {error.start} is not UTF-8 text") from error
    return parse_manifest(text, str(path), path.absolute().parent)


def _refuse_twins(documents: Sequence[Document]) -> None:
    seen: dict[tuple[str, str, str | None, str], Document] = {}
    for document in documents:
        if not document.object["metadata"].get("name"):
            continue
        key = (document.api_version, document.kind, document.namespace, document.name)
        twin = seen.setdefault(key, document)
        if twin is not document:
            raise Problem(f"{document.where}: {document.kind} {document.name} is there twice, see {twin.where}")


# JSON and YAML


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # written in C where available
    """Reads dates as the text that they are: no field of the API wants anything else."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _parse_json(text: str) -> list[tuple[int, Any]] | None:
    """None if it is not JSON. YAML reads most JSON too, but not with tabs."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        return [(1, json.loads(text))]
    except (ValueError, RecursionError):
        return None  # YAML's reader says where it is wrong


def _parse_yaml(text: str, source: str) -> list[tuple[int, Any]]:
    documents = []
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            _settle_keys(node, source)
            documents.append((node.start_mark.line + 1, loader.construct_document(node)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
        said = " ".join(filter(None, (error.context, error.problem)))
        raise Problem(f"{place}: this is not YAML: {said}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Problem(f"{source}: this is not YAML: {' '.join(str(error).split())}") from error
    finally:
        loader.dispose()
    return documents


def _settle_keys(root: yaml.Node, source: str) -> None:
    """Keys are the text that is written, `1` and `true` too. Two equal ones are refused: YAML would drop the first."""
    waiting, seen = [root], set()
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            for key, value in node.value:
                waiting.append(value)
                if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                    continue
                if key.value in keys:
                    mark = key.start_mark
                    raise Problem(f"{source}:{mark.line + 1}:{mark.column + 1}: the key {key.value!r} is there twice")
                keys.add(key.value)
                key.tag = _TEXT


_TEXT, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"


# From values to objects


class _Plain:
    """Makes JSON's types of YAML's, and stops at documents whose aliases unfold without end."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._left = _MOST_VALUES

    def convert(self, value: Any, depth: int = 0) -> Any:
        self._left -= 1
        if self._left < 0 or depth > _DEEPEST:
            raise Problem(f"{self._where}: too large or too deeply nested for a manifest")
        if isinstance(value, dict):
            return {str(key): self.convert(item, depth + 1) for key, item in value.items()}
        if isinstance(value, list):
            return [self.convert(item, depth + 1) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            raise Problem(f"{self._where}: {value} is not a number that JSON knows; put it in quotes if it is text")
        if isinstance(value, str | int | float | None):
            return value
        raise Problem(f"{self._where}: a value of type {type(value).__name__} has no place in a manifest")


def _items(value: Any, where: str) -> Iterable[Object]:
    if not isinstance(value, dict):
        raise Problem(f"{where}: an object with apiVersion, kind and metadata is wanted, not {_shown(value)}")
    for field in ("apiVersion", "kind"):
        if not value.get(field):
            meant = _meant(field, value) or ": every manifest says apiVersion, kind and metadata"
            raise Problem(f"{where}: the object has no `{field}`{meant}")
        if not isinstance(value[field], str):
            raise Problem(f"{where}: `{field}` must be text, not {_shown(value[field])}")
    if value["kind"] == "List":
        items = value.get("items") or []
        if not isinstance(items, list):
            raise Problem(f"{where}: `items` of a List must be a list")
        return [found for item in items for found in _items(item, where)]
    _check_metadata(value, where)
    return [value]


def _check_metadata(value: Object, where: str) -> None:
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        meant = _meant("name", metadata) if isinstance(metadata, dict) else _meant("metadata", value)
        raise Problem(f"{where}: {value['kind']} has no `metadata.name`{meant}")
    for field in ("name", "generateName", "namespace"):
        if not isinstance(metadata.get(field, ""), str | None):
            raise Problem(f"{where}: `metadata.{field}` must be text, not {_shown(metadata[field])}: put it in quotes")
    for field in ("labels", "annotations"):
        for key, text in _mapping(metadata.get(field), f"metadata.{field}", where).items():
            if not isinstance(text, str):
                raise Problem(f"{where}: `metadata.{field}.{key}` must be text, not {_shown(text)}: put it in quotes")
    _mapping(value.get("spec"), "spec", where)


def _meant(field: str, obj: Object) -> str:
    """Which key of the object may be the missing field, misspelt."""
    near = nearest(field, obj.keys() - _NO_MISSPELLINGS)
    return f": did you mean it by `{near}`?" if near else ""


def _mapping(value: Any, path: str, where: str) -> Object:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Problem(f"{where}: `{path}` must be a mapping, not {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
