"""Field sets and their FieldsV1 form."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.apiserver.schema.builtin import definition
from trainwright.cluster.apiserver.writes.fieldpath import (
    NODE,
    Path,
    flatten,
    format_path,
    from_fields_v1,
    is_managed,
    to_fields_v1,
)

elements = st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"1"'])
paths = st.lists(elements, min_size=1, max_size=4).map(tuple)


@given(st.sets(paths, max_size=12))
def test_fields_v1_round_trip(members: set[Path]) -> None:
    assert from_fields_v1(to_fields_v1(members)) == members


def test_lists_with_keys_are_flattened_by_element() -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "metadata": {"name": "p", "uid": "u", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "m", "command": ["x", "y"], "ports": [{"containerPort": 80}]}]},
    }
    main = ("f:spec", "f:containers", 'k:{"name":"m"}')
    port = (*main, "f:ports", 'k:{"containerPort":80,"protocol":"TCP"}')
    assert flatten(pod, definition("Pod"), definition) == {
        ("f:metadata", "f:labels"): NODE,
        ("f:metadata", "f:labels", "f:a"): "b",
        ("f:spec",): NODE,
        ("f:spec", "f:containers"): NODE,
        main: NODE,
        (*main, "f:name"): "m",
        (*main, "f:command"): ["x", "y"],
        (*main, "f:ports"): NODE,
        port: NODE,
        (*port, "f:containerPort"): 80,
    }


@pytest.mark.parametrize("elements", [["x"], [{"name": "a"}, "x"]])
def test_keyed_list_with_other_elements_is_one_value(elements: list[Any]) -> None:
    spec = {"containers": elements}
    assert flatten({"spec": spec}, definition("Pod"), definition)["f:spec", "f:containers"] == elements


@given(st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner) | st.dictionaries(
    st.sampled_from([".", "f:a", "k:", "", "x"]), inner), max_leaves=8))  # fmt: skip
def test_any_fields_v1_of_a_client_can_be_read(fields: Any) -> None:
    for path in from_fields_v1(fields):
        assert all(element != "." for element in path)


@pytest.mark.parametrize(
    ("path", "managed"),
    [
        ((), False),
        (("f:kind",), False),
        (("f:metadata",), False),
        (("f:metadata", "f:uid"), False),
        (("f:metadata", "f:labels"), True),
        (("f:metadata", "f:labels", "f:uid"), True),
        (("f:spec",), True),
        (("f:spec", "f:uid"), True),
    ],
)
def test_what_every_object_has_is_not_managed(path: Path, managed: bool) -> None:
    assert is_managed(path) is managed


def test_paths_are_formatted_as_in_conflict_messages() -> None:
    assert format_path(("f:spec", 'k:{"id":"1"}', "f:n", 'v:"x"')) == '.spec[id="1"].n[="x"]'
