"""JSON merge patch and JSON patch."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.apiserver.writes.json_patch import PatchError, json_patch, merge_patch

values = st.recursive(
    st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)
objects = st.dictionaries(st.sampled_from("abc"), values, max_size=3)
patches = st.dictionaries(st.sampled_from("abc"), values | st.none(), max_size=3)


class TestMerge:
    @given(objects, patches)
    def test_merge_patch_sets_and_removes_fields(self, target: dict[str, Any], patch: dict[str, Any]) -> None:
        before = copy.deepcopy(target)
        merged = merge_patch(target, patch)
        assert target == before
        assert merge_patch(merged, patch) == merged
        for key in "abc":
            if key not in patch:
                assert merged.get(key) == target.get(key)
            elif patch[key] is None:
                assert key not in merged
            elif not isinstance(patch[key], dict):
                assert merged[key] == patch[key]


class TestJsonPatch:
    @given(objects, values)
    def test_added_value_can_be_tested_and_removed(self, target: dict[str, Any], value: Any) -> None:
        before = copy.deepcopy(target)
        path = "/new~1field~0"
        operations = [{"op": "add", "path": path, "value": value}, {"op": "test", "path": path, "value": value}]
        assert json_patch(target, operations) == target | {"new/field~": value}
        assert json_patch(target, [*operations, {"op": "remove", "path": path}]) == before
        assert target == before

    def test_lists(self) -> None:
        operations = [
            {"op": "add", "path": "/l/-", "value": 4},
            {"op": "add", "path": "/l/0", "value": 0},
            {"op": "remove", "path": "/l/2"},
        ]
        assert json_patch({"l": [1, 2, 3]}, operations) == {"l": [0, 1, 3, 4]}

    @pytest.mark.parametrize(
        ("operation", "message"),
        [
            ({"op": "remove", "path": "/x"}, "remove operation does not apply: doc is missing path: /x"),
            ({"op": "add", "path": "/x/y", "value": 1}, "doc is missing path: /x"),
            ({"op": "add", "path": "/l/9", "value": 1}, "index '9' is outside of a list of 1"),
            ({"op": "add", "path": "/l/²", "value": 1}, "index '²' is outside of a list of 1"),
            ({"op": "add", "path": "l"}, "path 'l' is not a JSON pointer"),
            ({"op": "add", "path": "/l"}, "value is missing"),
            ({"op": "sing"}, "unknown operation"),
            ({"op": "test", "path": "/l", "value": 2}, "testing value /l failed"),
            ("no", "unknown operation 'no'"),
        ],
    )
    def test_invalid_patches_are_rejected(self, operation: Any, message: str) -> None:
        with pytest.raises(PatchError, match=message):
            json_patch({"l": [1]}, [operation])
