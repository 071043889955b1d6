"""Server-side apply on values: an object has what its managers apply, and managers own what they apply."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.writes.managed_fields import FieldManager, read_entries
from trainwright.cluster.apiserver.writes.server_side_apply import apply_object
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS, PODS, Resource

NOW = datetime(2026, 1, 1, tzinfo=UTC)
REGISTRY = Registry()
MANAGERS = st.sampled_from(["one", "two", "three"])
DATA = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["1", "2"]))


def apply(resource: Resource, old: Object | None, manager: str, fields: Object, *, force: bool = False) -> Object:
    applied = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "x"}, **fields}
    author = FieldManager(manager, NOW, operation="Apply")
    return apply_object(REGISTRY.of(resource), old, applied, author, force=force)


def owned(obj: Object) -> dict[str, set[str]]:
    """The keys of `data` by manager."""
    found: dict[str, set[str]] = {}
    for entry in read_entries(obj):
        found[entry.manager] = {path[1].removeprefix("f:") for path in entry.paths if len(path) == 2}
    return {manager: keys for manager, keys in found.items() if keys}


@given(st.lists(st.tuples(MANAGERS, DATA), min_size=1, max_size=6))
def test_object_has_what_its_managers_last_applied(applies: list[tuple[str, dict[str, str]]]) -> None:
    current: Object | None = None
    values: dict[str, str] = {}
    owners: dict[str, set[str]] = {}
    for manager, data in applies:
        for key in owners.pop(manager, set()) - data.keys():
            if not any(key in keys for keys in owners.values()):
                del values[key]
        for keys in owners.values():
            keys -= {key for key in data if key in keys and values[key] != data[key]}
        owners[manager] = set(data)
        values |= data

        current = apply(CONFIG_MAPS, current, manager, {"data": data} if data else {}, force=True)

        assert (current.get("data") or {}) == values
        assert owned(current) == {manager: keys for manager, keys in owners.items() if keys}


@given(DATA, DATA)
def test_conflict_is_a_field_of_another_manager_with_another_value(
    first: dict[str, str], second: dict[str, str]
) -> None:
    old = apply(CONFIG_MAPS, None, "one", {"data": first} if first else {})
    conflicts = sorted(key for key in first.keys() & second.keys() if first[key] != second[key])
    if not conflicts:
        assert (apply(CONFIG_MAPS, old, "two", {"data": second}).get("data") or {}) == first | second
        return
    with pytest.raises(StatusError) as raised:
        apply(CONFIG_MAPS, old, "two", {"data": second})
    causes = (raised.value.details or {})["causes"]
    assert (raised.value.code, [cause["field"] for cause in causes]) == (409, [f".data.{key}" for key in conflicts])


def test_list_without_keys_is_one_value() -> None:
    def pod(*command: str) -> Object:
        return {"spec": {"containers": [{"name": "c", "command": list(command)}]}}

    old = apply(PODS, None, "one", pod("a", "b"))
    assert apply(PODS, old, "one", pod("c"))["spec"] == pod("c")["spec"]
    with pytest.raises(StatusError, match=r"conflict with \"one\": .spec.containers\[name=\"c\"\].command"):
        apply(PODS, old, "two", pod("c"))


def test_element_of_a_keyed_list_goes_with_its_last_manager() -> None:
    def pod(*names: str, **more: Any) -> Object:
        return {"spec": {"containers": [{"name": name, **more} for name in names]}}

    both = apply(PODS, apply(PODS, None, "one", pod("a", "b")), "two", pod("b", "c", image="x"))
    left = apply(PODS, both, "two", pod("c"))
    assert left["spec"]["containers"] == [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    assert apply(PODS, left, "one", pod("a"))["spec"]["containers"] == [{"name": "a"}, {"name": "c"}]
