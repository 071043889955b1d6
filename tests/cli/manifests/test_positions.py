"""Errors point to the line and column of the field."""

import json
from pathlib import Path

import pytest

from trainwright.cli.errors import CommandError
from trainwright.cli.manifests.positions import Place, Position, find_field, pointer
from trainwright.cli.manifests.reader import parse_manifest

TEXT = """\
# a comment
apiVersion: v1
metadata: {name: first, labels: {app.kubernetes.io/name: x}}
---
spec:
  replicas:
    Worker:
      replicas: three
      containers:
      - name: a
        image: b
      - image: c
"""


@pytest.mark.parametrize(
    ("line", "path", "found"),
    [
        (2, "metadata.name", (3, 12)),
        (2, "metadata.labels[app.kubernetes.io/name]", (3, 34)),
        (2, "metadata.labels.app.kubernetes.io/name", (3, 34)),
        (5, "spec.replicas[Worker].replicas", (8, 7)),
        (5, "spec.replicas.Worker.replicas", (8, 7)),
        (5, "spec.replicas[Worker].containers[1].image", (12, 9)),
        (5, "spec.replicas[Worker].containers[1]", (12, 9)),
        # A missing field: the nearest one above it.
        (5, "spec.replicas[Worker].containers[1].name", (12, 9)),
        (5, "spec.replicas[Worker].containers[7].name", (9, 7)),
        (5, "metadata.name", (5, 1)),
    ],
)
def test_a_field_is_found_by_its_path(line: int, path: str, found: tuple[int, int]) -> None:
    assert find_field(TEXT, line, path) == Position(*found)


def test_a_field_is_found_in_json_with_tabs() -> None:
    text = json.dumps({"spec": {"replicas": "three"}}, indent="\t")
    assert find_field(text, 1, "spec.replicas") == Position(3, 3)


def test_without_a_text_there_is_no_position() -> None:
    assert find_field("", 1, "spec") is None
    assert find_field("{", 1, "spec") is None
    assert pointer("", Position(3, 1)) == []
    assert (
        Place("train.py", 0).error("spec", "spec: wrong", title="PyTorchJob x: ")
        == "train.py: PyTorchJob x: spec: wrong"
    )


def test_the_error_shows_the_line_and_a_caret() -> None:
    assert Place("job.yaml", 5, TEXT).error("spec.replicas[Worker].replicas", "must be an integer") == (
        "job.yaml:8:7: must be an integer\n  8 |       replicas: three\n    |       ^"
    )


def test_an_object_of_a_list_is_found_in_it() -> None:
    text = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: a}
- apiVersion: v1
  kind: ConfigMap
  metadata:
    name: b
"""
    _, second = parse_manifest(text, "list.yaml", Path("/"))
    assert second.place.error("metadata.name", "wrong").startswith("list.yaml:10:5: wrong\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a:\n\tb: 1\n", "job.yaml:2:1: invalid YAML: a tab: YAML is indented with spaces only\n  2 |  b: 1\n    | ^"),
        ("a:\n  b:\n  \tc: 1\n", "job.yaml:3:3: invalid YAML: a tab: YAML is indented with spaces only\n"),
        ("a: b: c\n", "job.yaml:1:5: invalid YAML: mapping values are not allowed in this context\n  1 | a: b: c\n"),
        (
            "apiVersion: v1\nkind: Foo\nmetadata:\n  name: x\n  labels:\n    a: 1\n",
            "job.yaml:6:5: `metadata.labels.a` must be a string, not 1: put it in quotes\n  6 |     a: 1\n    |     ^",
        ),
    ],
)
def test_errors_of_the_reader_point_to_the_place(text: str, message: str) -> None:
    with pytest.raises(CommandError) as caught:
        parse_manifest(text, "job.yaml", Path("/"))
    assert caught.value.message.startswith(message)
