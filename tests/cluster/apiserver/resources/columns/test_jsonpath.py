"""Paths of printer columns."""

import pytest

from trainwright.cluster.apiserver.resources.columns.jsonpath import JsonPathError, compile_path

OBJ = {
    "metadata": {"labels": {"a.b/c": "dotted"}},
    "status": {
        "conditions": [{"type": "Created", "status": "True"}, {"type": "Running", "status": "False"}],
        "replicas": 0,
    },
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".status.replicas", [0]),
        ("{.status.replicas}", [0]),
        (".status.conditions[-1:].type", ["Running"]),
        (".status.conditions[0].type", ["Created"]),
        (".status.conditions[*].type", ["Created", "Running"]),
        ('.status.conditions[?(@.type=="Running")].status', ["False"]),
        (".metadata.labels['a.b/c']", ["dotted"]),
        (".metadata.labels.a\\.b/c", ["dotted"]),
        (".status.nothing.at.all", []),
        (".status.conditions[7].type", []),
        (".status.replicas[0]", []),
    ],
)
def test_jsonpath_values(path: str, found: list[object]) -> None:
    assert compile_path(path)(OBJ) == found


@pytest.mark.parametrize("path", ["status", ".a[", ".a..b", ".a[?(@.b>1)]"])
def test_invalid_paths_are_rejected(path: str) -> None:
    with pytest.raises(JsonPathError, match="cannot read JSONPath"):
        compile_path(path)
