"""Reads manifests from files, directories and standard input into objects that know their file and line.

Errors that can be found without a cluster are reported here, with file, line and column.
"""

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trainwright.api.kinds import KINDS, Kind
from trainwright.cli.errors import CommandError
from trainwright.cli.manifests.positions import Place, Position, pointer
from trainwright.cli.spelling import nearest
from trainwright.objects import Object
from trainwright.objects.resources import Resource
from trainwright.objects.yaml_documents import Loader, check_depth, expanded_size

_KNOWN_FIELDS = {"apiVersion", "kind", "metadata", "spec", "namespace", "generateName"}
_SUFFIXES = (".yaml", ".yml", ".json")
_MAX_VALUES = 200_000
_MAX_CHARACTERS = 16 * 1024 * 1024
_MAX_DEPTH = 64
JOB_LABEL = "trainwright.dev/job"
"""On objects that `run` created for a job: its name. It also shows whose they are before they have an owner."""


@dataclass(frozen=True, slots=True)
class OwnedObject:
    """An object that belongs to one job: created before it, owned by it as soon as it exists, deleted with it."""

    resource: Resource
    object: Object

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Document:
    """One object of a manifest. `directory` is the directory of its file."""

    place: Place
    directory: Path
    object: Object
    owned: tuple[OwnedObject, ...] = ()
    """The objects that a job needs and that are deleted with it."""

    @property
    def kind(self) -> str:
        return str(self.object["kind"])

    @property
    def api_version(self) -> str:
        return str(self.object["apiVersion"])

    @property
    def job_kind(self) -> Kind | None:
        """The kind of job that it is; None for other objects."""
        kind = KINDS.get(self.kind)
        return kind if kind and kind.resource.api_version == self.api_version else None

    @property
    def name(self) -> str:
        """metadata.name, or metadata.generateName if the server chooses the name."""
        metadata = self.object["metadata"]
        return str(metadata.get("name") or metadata["generateName"])

    @property
    def namespace(self) -> str | None:
        namespace = self.object["metadata"].get("namespace")
        return str(namespace) if namespace else None


def read_manifests(names: Sequence[str]) -> list[Document]:
    """All objects of all files, in order. `-` is standard input; a directory means its .yaml, .yml and .json files."""
    documents = [document for name in names for document in _read(name)]
    if not documents:
        raise CommandError(f"no objects found in {', '.join(names)}")
    _refuse_duplicates(documents)
    return documents


def parse_manifest(text: str, source: str, directory: Path) -> list[Document]:
    """The objects of one file. Lists (`kind: List`) are expanded, empty documents are skipped."""
    found = []
    for line, value in _parse_json(text) or _parse_yaml(text, source):
        if value is None:
            continue
        place = Place(source, line, text)
        found += [Document(where, directory, item) for where, item in _objects(_json_value(value, place), place)]
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
        hint = f"it has no {', '.join(_SUFFIXES)} files"
        if program := next(iter(sorted(path.glob("*.py"))), None):
            hint = f"to run a program in it, name its file: trainwright run {program}"
        raise CommandError(f"no manifests found in directory {path}: {hint}")
    for file in files:
        yield from _read_file(file)


def _read_file(path: Path) -> list[Document]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CommandError(f"failed to read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} is not a manifest: byte {error.start} is not UTF-8 text") from error
    try:
        return parse_manifest(text, str(path), path.absolute().parent)
    except CommandError as error:
        if path.suffix in _SUFFIXES:
            raise
        known = f"{path} is neither a manifest ({', '.join(_SUFFIXES)}) nor a Python program (.py)"
        raise CommandError(f"{known}; read as a manifest: {error.message}") from error


def _refuse_duplicates(documents: Sequence[Document]) -> None:
    seen: dict[tuple[str, str, str | None, str], Document] = {}
    for document in documents:
        if not document.object["metadata"].get("name"):
            continue
        key = (document.api_version, document.kind, document.namespace, document.name)
        first = seen.setdefault(key, document)
        if first is not document:
            raise CommandError(f"{document.place}: {document.kind} {document.name} is already defined at {first.place}")


# JSON and YAML


def _parse_json(text: str) -> list[tuple[int, Any]] | None:
    """None if it is not JSON. The YAML parser reads JSON too, but not with tabs."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        return [(1, json.loads(text))]
    except (ValueError, RecursionError):
        return None  # the YAML parser reports where the error is


def _parse_yaml(text: str, source: str) -> list[tuple[int, Any]]:
    documents = []
    loader = Loader(text)
    try:
        check_depth(text)
        while loader.check_node():
            node = loader.get_node()
            line = node.start_mark.line + 1
            size = expanded_size(node)
            if size.values > _MAX_VALUES or size.characters > _MAX_CHARACTERS:
                raise CommandError(f"{source}:{line}: too large for a manifest")
            _check_keys(node, text, source)
            documents.append((line, loader.construct_document(node)))
    except yaml.MarkedYAMLError as error:
        raise CommandError(_yaml_error(error, text, source)) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise CommandError(f"{source}: invalid YAML: {' '.join(str(error).split())}") from error
    finally:
        loader.dispose()
    return documents


def _yaml_error(error: yaml.MarkedYAMLError, text: str, source: str) -> str:
    mark = error.problem_mark or error.context_mark
    detail = " ".join(filter(None, (error.context, error.problem)))
    if mark is None:
        return f"{source}: invalid YAML: {detail}"
    position = Position(mark.line + 1, mark.column + 1)
    if text.splitlines()[mark.line : mark.line + 1] and _tab_before(text.splitlines()[mark.line], mark.column):
        detail = "a tab: YAML is indented with spaces only"
    return "\n".join([f"{source}:{position.line}:{position.column}: invalid YAML: {detail}", *pointer(text, position)])


def _tab_before(line: str, column: int) -> bool:
    """Whether the indentation up to the column contains a tab."""
    indentation = line[: column + 1]
    return "\t" in indentation and not indentation.strip()


def _check_keys(root: yaml.Node, text: str, source: str) -> None:
    """Makes every key a string, as it is written, and refuses duplicate keys: the YAML parser would drop the first."""
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
                    place = Position(key.start_mark.line + 1, key.start_mark.column + 1)
                    line = f"{source}:{place.line}:{place.column}: duplicate key {key.value!r}"
                    raise CommandError("\n".join([line, *pointer(text, place)]))
                keys.add(key.value)
                key.tag = _TEXT


_TEXT, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"


# Objects


def _json_value(value: Any, where: Place, depth: int = 0) -> Any:
    """Refuses what YAML has and JSON has not."""
    if depth > _MAX_DEPTH:
        raise CommandError(f"{where}: too deeply nested for a manifest")
    if isinstance(value, dict):
        return {_json_value(str(key), where): _json_value(item, where, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_value(item, where, depth + 1) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise CommandError(f"{where}: {value} is not a JSON number; if it is a string, put it in quotes")
    if isinstance(value, str) and not is_unicode(value):
        raise CommandError(f"{where}: {value!r} is not a string of Unicode characters")
    if isinstance(value, str | int | float | None):
        return value
    raise CommandError(f"{where}: a manifest cannot contain a value of type {type(value).__name__}")


def is_unicode(text: str) -> bool:
    """False for half a surrogate pair, which JSON can express and UTF-8 cannot, and for other bytes of an argument."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _objects(value: Any, where: Place) -> Iterable[tuple[Place, Object]]:
    if not isinstance(value, dict):
        raise CommandError(f"{where}: must be an object with apiVersion, kind and metadata, not {_shown(value)}")
    for field in ("apiVersion", "kind"):
        if not value.get(field):
            hint = _hint(field, value) or ": every object needs apiVersion, kind and metadata"
            raise CommandError(f"{where}: `{field}` is missing{hint}")
        if not isinstance(value[field], str):
            raise CommandError(where.error(field, f"`{field}` must be a string, not {_shown(value[field])}"))
    if value["kind"] == "List":
        items = value.get("items") or []
        if not isinstance(items, list):
            raise CommandError(where.error("items", "`items` of a List must be a list"))
        return [found for index, item in enumerate(items) for found in _objects(item, where.item(index))]
    _check_metadata(value, where)
    return [(where, value)]


def _check_metadata(value: Object, where: Place) -> None:
    metadata = value.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        hint = _hint("name", metadata) if isinstance(metadata, dict) else _hint("metadata", value)
        raise CommandError(where.error("metadata", f"`metadata.name` of {value['kind']} is missing{hint}"))
    for field in ("name", "generateName", "namespace"):
        if not isinstance(metadata.get(field, ""), str | None):
            raise CommandError(_not_a_string(where, f"metadata.{field}", metadata[field]))
    for field in ("labels", "annotations"):
        for key, text in _mapping(metadata.get(field), f"metadata.{field}", where).items():
            if not isinstance(text, str):
                raise CommandError(_not_a_string(where, f"metadata.{field}.{key}", text))
    _mapping(value.get("spec"), "spec", where)


def _hint(field: str, obj: Object) -> str:
    """Names the key of the object that may be the missing field, misspelled."""
    near = nearest(field, obj.keys() - _KNOWN_FIELDS)
    return f": is `{near}` a misspelling of it?" if near else ""


def _mapping(value: Any, path: str, where: Place) -> Object:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise CommandError(where.error(path, f"`{path}` must be an object, not {_shown(value)}"))
    return value


def _not_a_string(where: Place, path: str, value: Any) -> str:
    return where.error(path, f"`{path}` must be a string, not {_shown(value)}: put it in quotes")


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}…"
