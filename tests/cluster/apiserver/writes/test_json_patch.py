"""JSON merge patch and JSON patch."""

import copy
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.apiserver.writes.json_patch import PatchError, TooManyOperations, json_patch, merge_patch

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

    @given(objects, values)
    def test_operations_on_the_whole_document(self, target: dict[str, Any], value: Any) -> None:
        for op in ("add", "replace"):
            assert json_patch(target, [{"op": op, "path": "", "value": value}]) == value
        assert json_patch(target, [{"op": "copy", "from": "", "path": "/whole"}]) == target | {"whole": target}

    @given(st.lists(values, min_size=1, max_size=4), st.data())
    def test_elements_are_replaced_and_moved_by_their_index(self, elements: list[Any], data: st.DataObject) -> None:
        index, other = (data.draw(st.integers(0, len(elements) - 1)) for _ in range(2))
        replaced = json_patch({"l": elements}, [{"op": "replace", "path": f"/l/{index}", "value": "new"}])
        assert replaced["l"] == [*elements[:index], "new", *elements[index + 1 :]]
        moved = json_patch({"l": elements}, [{"op": "move", "from": f"/l/{index}", "path": f"/l/{other}"}])["l"]
        rest = [*elements[:index], *elements[index + 1 :]]
        assert moved == [*rest[:other], elements[index], *rest[other:]]

    @given(values, values)
    def test_a_test_passes_for_equal_json_alone(self, found: Any, wanted: Any) -> None:
        operations = [{"op": "test", "path": "/a", "value": wanted}]
        if repr(found) == repr(wanted):
            assert json_patch({"a": found}, operations) == {"a": found}
        elif found != wanted:
            with pytest.raises(PatchError):
                json_patch({"a": found}, operations)

    @pytest.mark.parametrize(("one", "other"), [*pairwise([True, 1, 1.0, "1", [1], {"1": 1}, None]), (False, 0)])
    def test_a_test_distinguishes_types(self, one: Any, other: Any) -> None:
        for found, wanted in ((one, other), (other, one)):
            with pytest.raises(PatchError, match="test failed"):
                json_patch({"a": found}, [{"op": "test", "path": "/a", "value": wanted}])

    def test_a_missing_field_is_null_for_a_test(self) -> None:
        assert json_patch({"a": 1}, [{"op": "test", "path": "/b/c", "value": None}]) == {"a": 1}

    def test_replace_adds_a_field(self) -> None:
        """RFC 6902 refuses it; clients rely on the real server, which does not."""
        assert json_patch({}, [{"op": "replace", "path": "/a", "value": 1}]) == {"a": 1}

    def test_number_of_operations_and_copied_bytes_are_bounded(self) -> None:
        test = {"op": "test", "path": "/a", "value": None}
        assert json_patch({}, [test] * 10_000) == {}
        with pytest.raises(TooManyOperations, match="allowed maximum operations in a JSON patch is 10000, got 10001"):
            json_patch({}, [test] * 10_001)
        doubled = [{"op": "copy", "from": "", "path": path} for path in ("/a", "/b")] * 20
        with pytest.raises(PatchError, match="copy operations may add at most 3145728 bytes"):
            json_patch({"text": "x"}, doubled)

    @pytest.mark.parametrize("operations", [{}, None, "remove", 7])
    def test_a_patch_is_a_list(self, operations: Any) -> None:
        with pytest.raises(PatchError, match="a JSON patch is a list of operations"):
            json_patch({}, operations)

    @pytest.mark.parametrize(
        ("operation", "message"),
        [
            ({"op": "remove", "path": "/x"}, "remove operation does not apply: doc is missing path: /x"),
            ({"op": "add", "path": "/x/y", "value": 1}, "doc is missing path: /x"),
            ({"op": "add", "path": "/l/9", "value": 1}, "index '9' is outside of a list of 1"),
            ({"op": "add", "path": "/l/²", "value": 1}, "index '²' is outside of a list of 1"),
            ({"op": "add", "path": "l"}, "path 'l' is not a JSON pointer"),
            ({"op": "add", "path": "/l"}, "value is missing"),
            ({"op": "add", "path": "/n/y", "value": 1}, "add operation does not apply: doc is missing path: /n/y"),
            (
                {"op": "replace", "path": "/n/y", "value": 1},
                "replace operation does not apply: doc is missing key: /n/y",
            ),
            ({"op": "replace", "path": "/l/1", "value": 1}, "index '1' is outside of a list of 1"),
            ({"op": "remove", "path": "/n/y"}, "remove operation does not apply: doc is missing path: /n/y"),
            ({"op": "remove", "path": ""}, "remove operation does not apply to the whole document"),
            ({"op": "remove", "path": "/l/-"}, "index '-' is outside of a list of 1"),
            ({"op": "remove", "path": 7}, "path 7 is not a JSON pointer"),
            ({"op": "move", "from": "/n", "path": "/n/x"}, "doc is missing path: /n"),
            ({"op": "copy", "from": "/l/0/x", "path": "/x"}, "doc is missing path: /l/0/x"),
            ({"op": ["add"]}, "unknown operation"),
            ({"op": "sing"}, "unknown operation"),
            ({"op": "test", "path": "/l", "value": 2}, "testing value /l failed"),
            ("no", "unknown operation 'no'"),
        ],
    )
    def test_invalid_patches_are_rejected(self, operation: Any, message: str) -> None:
        with pytest.raises(PatchError, match=message):
            json_patch({"l": [1], "n": 5}, [operation])
