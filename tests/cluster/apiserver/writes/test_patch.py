"""Strategic merge patch: merge keys and directives."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.apiserver.schema.builtin import definition
from trainwright.cluster.apiserver.writes.json_patch import PatchError
from trainwright.cluster.apiserver.writes.patch import strategic_merge_patch


class TestStrategicMerge:
    def patched(self, target: Any, patch: Any) -> Any:
        before = copy.deepcopy(target)
        result = strategic_merge_patch(target, patch, definition("PodSpec"), definition)
        assert target == before
        return result

    def test_list_elements_are_merged_by_key(self) -> None:
        target = {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]}
        patch = {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}, {"name": "c"}]}
        assert self.patched(target, patch) == {
            "containers": [
                {"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]},
                {"name": "b"},
                {"name": "c"},
            ]
        }

    def test_elements_are_ordered_by_the_client(self) -> None:
        target = {"containers": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}
        patch = {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}
        assert [one["name"] for one in self.patched(target, patch)["containers"]] == ["c", "a", "b"]

    def test_long_lists_take_linear_time(self) -> None:
        names = [f"v{number}" for number in range(10_000)]
        target = {"containers": [{"name": "a", "env": [{"name": name, "value": "1"} for name in names]}]}
        changed = [{"name": name, "value": "2"} for name in names[5000:]]
        removed = [{"name": name, "$patch": "delete"} for name in names[:100]]
        order = [{"name": name} for name in reversed(names)]
        patch = {"name": "a", "env": [*changed, *removed], "$setElementOrder/env": order}

        (found,) = self.patched(target, {"containers": [patch]})["containers"]

        assert [entry["name"] for entry in found["env"]] == names[:99:-1]
        assert [entry["value"] for entry in found["env"]] == ["2"] * 5000 + ["1"] * 4900

    def test_long_lists_of_texts_take_linear_time(self) -> None:
        finalizers = [f"example.com/f{number}" for number in range(10_000)]
        merged = strategic_merge_patch(
            {"finalizers": finalizers},
            {"finalizers": [*finalizers[5000:], "example.com/new"]},
            definition("ObjectMeta"),
            definition,
        )
        assert merged["finalizers"] == [*finalizers, "example.com/new"]
        patch = {"$deleteFromPrimitiveList/finalizers": finalizers[1:]}
        left = strategic_merge_patch({"finalizers": finalizers}, patch, definition("ObjectMeta"), definition)
        assert left["finalizers"] == finalizers[:1]

    def test_directives(self) -> None:
        target = {"containers": [{"name": "a"}, {"name": "b"}], "volumes": [{"name": "v", "emptyDir": {}}]}
        patch = {
            "containers": [{"$patch": "delete", "name": "a"}],
            "volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}],
            "nodeSelector": {"$patch": "replace", "k": "v"},
        }
        assert self.patched(target | {"nodeSelector": {"old": "1"}}, patch) == {
            "containers": [{"name": "b"}],
            "volumes": [{"name": "v", "hostPath": {"path": "/x"}}],
            "nodeSelector": {"k": "v"},
        }

    def test_lists_without_a_key_are_replaced(self) -> None:
        target = {"containers": [{"name": "a", "command": ["x", "y"]}]}
        patched = self.patched(target, {"containers": [{"name": "a", "command": ["z"]}]})
        assert patched["containers"][0]["command"] == ["z"]

    def test_map_can_be_emptied_and_list_replaced(self) -> None:
        target = {"nodeSelector": {"a": "b"}, "containers": [{"name": "a", "image": "x"}], "hostname": "h"}
        patch = {
            "nodeSelector": {"$patch": "delete"},
            "containers": [{"$patch": "replace"}, {"name": "b"}],
            "hostname": None,
        }
        assert self.patched(target, patch) == {"nodeSelector": {}, "containers": [{"name": "b"}]}

    def test_value_of_another_type_is_replaced(self) -> None:
        target = {"containers": "none", "nodeSelector": ["x"]}
        assert self.patched(target, {"containers": [{"name": "a"}], "nodeSelector": {"a": "b"}}) == {
            "containers": [{"name": "a"}],
            "nodeSelector": {"a": "b"},
        }

    @given(
        st.lists(st.sampled_from("abcd"), unique=True),
        st.lists(st.sampled_from("abcd"), unique=True),
        st.permutations("abcd"),
    )
    def test_merged_list_has_all_elements_in_the_clients_order(
        self, present: list[str], sent: list[str], order: list[str]
    ) -> None:
        patch = {
            "containers": [{"name": name, "image": "new"} for name in sent],
            "$setElementOrder/containers": [{"name": name} for name in order],
        }
        merged = self.patched({"containers": [{"name": name, "image": "old"} for name in present]}, patch)["containers"]
        images = {element["name"]: element["image"] for element in merged}
        assert images == dict.fromkeys(present, "old") | dict.fromkeys(sent, "new")
        assert list(images) == [name for name in order if name in images]

    def test_order_of_a_missing_list_changes_nothing(self) -> None:
        assert self.patched({}, {"$setElementOrder/containers": [{"name": "a"}]}) == {}

    @pytest.mark.parametrize(
        ("patch", "message"),
        [
            ([], "a strategic merge patch is a JSON object"),
            ({"$patch": "dance"}, "unknown \\$patch type 'dance'"),
            ({"$retainKeys": "name"}, "\\$retainKeys must be a list, not 'name'"),
            ({"$setElementOrder/containers": {}}, "must be a list, not {}"),
            ({"$deleteFromPrimitiveList/containers": 7}, "must be a list, not 7"),
            ({"containers": ["x"]}, "does not contain declared merge key: name"),
            ({"containers": [{"image": "x"}]}, "does not contain declared merge key: name"),
        ],
    )
    def test_invalid_patches_are_rejected(self, patch: Any, message: str) -> None:
        with pytest.raises(PatchError, match=message):
            self.patched({"containers": []}, patch)
