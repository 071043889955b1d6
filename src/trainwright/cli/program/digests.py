"""Digests of a job's program files, recorded on the job: a later `run` sees by them that the program was edited."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from trainwright.api.annotations import PROGRAM
from trainwright.cli.errors import CommandError
from trainwright.cli.manifests.reader import Document
from trainwright.cli.program.source import SUFFIX, Program, find_file, find_module
from trainwright.objects.node_annotations import DIRECTORY
from trainwright.objects.paths import value_at

_CHARACTERS = 16
_MAX_FILES = 200
"""An object of the API has room for many more, but every watch of the job receives them."""


def with_digests(document: Document) -> Document:
    """A job for the embedded cluster with the digests of the programs that its containers run; others unchanged."""
    metadata = document.object["metadata"]
    annotations = metadata.get("annotations") or {}
    if DIRECTORY not in annotations or PROGRAM in annotations:
        return document
    found: dict[str, str] = {}
    for program in _programs(document, Path(annotations[DIRECTORY])):
        found |= digests(program)
    if not found:
        return document
    return replace(
        document,
        object={**document.object, "metadata": {**metadata, "annotations": {**annotations, PROGRAM: encoded(found)}}},
    )


def digests(program: Program) -> dict[str, str]:
    """By path relative to the program's directory."""
    sources = list(program.sources().items())[:_MAX_FILES]
    return {str(path): hashlib.sha256(text).hexdigest()[:_CHARACTERS] for path, text in sources}


def encoded(found: dict[str, str]) -> str:
    return json.dumps(found, separators=(",", ":"))


def _programs(document: Document, directory: Path) -> Iterator[Program]:
    """The programs of this machine that the commands of a job name."""
    kind = document.job_kind
    replicas = value_at(document.object, "spec", kind.replicas_field) if kind else None
    seen: set[tuple[str, str]] = set()
    for replica in replicas.values() if isinstance(replicas, dict) else ():
        containers = value_at(replica, "template", "spec", "containers")
        for container in containers if isinstance(containers, list) else ():
            fields = (value_at(container, field) for field in ("command", "args"))
            words = [word for field in fields if isinstance(field, list) for word in field]
            here = directory / str(value_at(container, "workingDir", default=""))
            for before, word in pairwise(["", *map(str, words)]):
                if (before, word) not in seen:
                    seen.add((before, word))
                    yield from _program(before, word, here)


def _program(before: str, word: str, directory: Path) -> Iterator[Program]:
    try:
        if before == "-m":
            yield find_module(word, directory)
        elif word.endswith(SUFFIX) and (directory / word).is_file():
            yield find_file(str(directory / word))
    except (CommandError, OSError):
        return  # the node reports what is wrong with the command
