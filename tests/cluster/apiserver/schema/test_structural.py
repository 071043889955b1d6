"""The schema walk on its own: what it leaves of an object, whatever is thrown at it."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.objects.widgets import definition as crd
from trainwright.cluster.apiserver.schema.builtin import definition
from trainwright.cluster.apiserver.schema.decoding import DecodeError, ObjectSchema
from trainwright.cluster.apiserver.schema.structural import Findings, compile_schema, unenforced_rules

WIDGET = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
fields = sorted(WIDGET["properties"]["spec"]["properties"])
specs = st.dictionaries(st.sampled_from([*fields, "other"]), anything, max_size=5)


def admitted(spec: Any) -> tuple[Any, Findings]:
    obj = {"metadata": {"name": "w"}, "spec": copy.deepcopy(spec)}
    return obj["spec"], ObjectSchema(WIDGET, definition).decode(obj)


@given(specs)
def test_whatever_comes_what_is_kept_is_declared(spec: dict[str, Any]) -> None:
    kept, found = admitted(spec)
    assert kept.keys() <= {*fields}
    assert ("spec.other" in found.unknown) is ("other" in spec)
    assert kept["size"] == (3 if spec.get("size") is None else kept["size"])
    for name in kept:
        assert kept[name] is not None or name == "maybe"


@given(specs)
def test_a_second_walk_changes_nothing(spec: dict[str, Any]) -> None:
    once, first = admitted(spec)
    twice, second = admitted(once)
    assert twice == once
    assert second.unknown == []
    assert second.errors == first.errors


@given(anything)
def test_pods_of_any_shape_are_decoded_or_refused(value: Any) -> None:
    """Nothing but the one refusal comes out, however wrong the object is."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": copy.deepcopy(value)}
    refused = ""
    try:
        ObjectSchema(definition("Pod"), definition, builtin="Pod").decode(pod)
    except DecodeError as error:
        refused = str(error)
    if isinstance(value, dict):
        assert refused or pod["spec"].keys() <= definition("PodSpec")["properties"].keys()
    elif value is None:
        assert "spec" not in pod
    else:
        assert refused.endswith("into Go struct field Pod.spec of type v1.PodSpec")


@pytest.mark.parametrize(
    ("given_", "kept"), [(1, "1"), ("500m", "500m"), (1.5, "1500m"), (1024, "1Ki"), ("1e3", "1e3")]
)
def test_quantities_are_kept_as_text(given_: object, kept: str) -> None:
    found = Findings()
    assert compile_schema({"$ref": "Quantity"}, definition)(given_, "q", found) == kept
    assert found.errors == []


def test_rules_inside_lists_and_other_rules_are_listed() -> None:
    frozen = {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    schema = {
        "type": "object",
        "x-kubernetes-validations": [{"rule": "has(self.a)"}],
        "properties": {"a": frozen, "b": {"type": "array", "items": {"type": "object", "properties": {"c": frozen}}}},
        "additionalProperties": {"type": "string", "x-kubernetes-validations": [{"rule": "size(self) > 1"}]},
    }
    expected = {("<root>", "has(self.a)"), ("b[*]", "self == oldSelf"), ("[*]", "size(self) > 1")}
    assert set(unenforced_rules(schema)) == expected
