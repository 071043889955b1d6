"""Decoding of arbitrary objects by their schema."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.objects.widgets import definition as crd
from trainwright.cluster.apiserver.schema.builtin import definition
from trainwright.cluster.apiserver.schema.decoding import DecodeError, ObjectSchema
from trainwright.cluster.apiserver.schema.structural import Findings

WIDGET = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
fields = sorted(WIDGET["properties"]["spec"]["properties"])
specs = st.dictionaries(st.sampled_from([*fields, "other"]), anything, max_size=5)


def decoded(spec: Any) -> tuple[Any, Findings]:
    obj = {"metadata": {"name": "w"}, "spec": copy.deepcopy(spec)}
    return obj["spec"], ObjectSchema(WIDGET, definition).decode(obj)


@given(specs)
def test_decoding_keeps_only_declared_fields(spec: dict[str, Any]) -> None:
    kept, found = decoded(spec)
    assert kept.keys() <= {*fields}
    assert ("spec.other" in found.unknown) is ("other" in spec)
    assert kept["size"] == (3 if spec.get("size") is None else kept["size"])
    for name in kept:
        assert kept[name] is not None or name == "maybe"


@given(specs)
def test_decoding_twice_changes_nothing(spec: dict[str, Any]) -> None:
    once, first = decoded(spec)
    twice, second = decoded(once)
    assert twice == once
    assert second.unknown == []
    assert second.errors == first.errors


@given(anything)
def test_pods_of_any_shape_are_decoded_or_rejected(value: Any) -> None:
    """No other exception than DecodeError is raised."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": copy.deepcopy(value)}
    rejected = ""
    try:
        ObjectSchema(definition("Pod"), definition, builtin="Pod").decode(pod)
    except DecodeError as error:
        rejected = str(error)
    if isinstance(value, dict):
        assert rejected or pod["spec"].keys() <= definition("PodSpec")["properties"].keys()
    elif value is None:
        assert "spec" not in pod
    else:
        assert rejected.endswith("into Go struct field Pod.spec of type v1.PodSpec")
