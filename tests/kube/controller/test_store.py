"""The store: never back in time, never without own writes, never with deleted objects."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from trainwright.kube.controller.store import Store, raw_metadata
from trainwright.objects import Object


def obj(name: str, version: int, *, uid: str = "u", color: str = "red") -> Object:
    metadata = {"name": name, "namespace": "n", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata, "color": color}


def color_of(item: Object) -> Iterable[str]:
    return (item["color"],)


@pytest.fixture
def store() -> Store[Object]:
    return Store(indexes={"color": color_of})


def test_a_list_fills_the_store(store: Store[Object]) -> None:
    a, b = obj("a", 3), obj("b", 5)
    assert store.last_version == ""
    assert store.replace([a, b], "7") == [(None, a), (None, b)]
    assert (store.get("n/a"), store.get("n/x"), store.all(), len(store)) == (a, None, [a, b], 2)
    assert store.last_version == "7"


def test_objects_of_the_whole_cluster_are_found_by_their_name(store: Store[Object]) -> None:
    node = {"metadata": {"name": "local", "resourceVersion": "1"}, "color": "red"}
    store.replace([node], "1")
    assert store.get("local") == node


def test_events_return_the_object_before_and_after(store: Store[Object]) -> None:
    one, two, three = obj("a", 2), obj("a", 3), obj("a", 4)
    store.replace([], "1")
    assert store.apply(one) == [(None, one)]
    assert store.apply(two) == [(one, two)]
    assert remove(store, three) == [(two, None)]
    assert store.all() == []
    assert store.last_version == "4"


def test_indexes_follow_the_objects(store: Store[Object]) -> None:
    store.replace([obj("a", 1), obj("b", 2, color="blue")], "2")
    store.apply(obj("a", 3, color="blue"))
    assert store.by_index("color", "red") == []
    assert [item["metadata"]["name"] for item in store.by_index("color", "blue")] == ["b", "a"]
    remove(store, obj("b", 4, color="blue"))
    assert store.by_index("color", "blue") == [store.get("n/a")]


def test_an_index_that_does_not_exist_is_an_error(store: Store[Object]) -> None:
    with pytest.raises(KeyError):
        store.by_index("size", "big")


def test_own_write_is_visible_at_once(store: Store[Object]) -> None:
    store.replace([obj("a", 1)], "1")
    written = obj("a", 5, color="blue")
    store.remember(written)
    assert store.get("n/a") == written
    assert store.by_index("color", "blue") == [written]
    assert store.last_version == "1"


def test_an_older_event_does_not_undo_our_write(store: Store[Object]) -> None:
    store.replace([obj("a", 1)], "1")
    store.remember(obj("a", 5))
    assert store.apply(obj("a", 3)) == []
    assert store.get("n/a") == obj("a", 5)


def test_own_write_is_reported_once_the_watch_delivers_it(store: Store[Object]) -> None:
    store.replace([], "1")
    created = obj("a", 5)
    store.remember(created)
    assert store.apply(created) == [(None, created)]
    assert store.apply(obj("a", 6)) == [(created, obj("a", 6))]


def test_response_older_than_the_watch_is_ignored(store: Store[Object]) -> None:
    store.replace([obj("a", 1)], "1")
    store.apply(obj("a", 5))
    remove(store, obj("a", 7))
    store.remember(obj("a", 5))
    assert store.get("n/a") is None


def test_bookmark_advances_the_position(store: Store[Object]) -> None:
    store.replace([], "1")
    store.advance("9")
    store.remember(obj("a", 5))
    assert store.all() == []


def test_list_removes_only_older_objects(store: Store[Object]) -> None:
    store.replace([obj("old", 1), obj("gone", 2)], "2")
    store.remember(obj("new", 9))
    store.remember(obj("old", 8, color="blue"))
    assert store.replace([obj("old", 1)], "5") == [(obj("gone", 2), None)]
    assert sorted(item["metadata"]["name"] for item in store.all()) == ["new", "old"]
    assert store.get("n/old") == obj("old", 8, color="blue")
    assert store.replace([], "10") == [(obj("old", 1), None)]
    assert store.all() == []


def test_a_list_that_brings_nothing_new_changes_nothing(store: Store[Object]) -> None:
    store.replace([obj("a", 1)], "1")
    assert store.replace([obj("a", 1)], "4") == []


def test_a_successor_survives_the_deletion_of_its_predecessor(store: Store[Object]) -> None:
    first, second = obj("a", 1, uid="u1"), obj("a", 5, uid="u2")
    store.replace([first], "1")
    store.remember(second)
    assert remove(store, obj("a", 4, uid="u1")) == []
    assert store.get("n/a") == second
    assert store.apply(second) == [(first, second)]


def test_forgotten_object_does_not_return(store: Store[Object]) -> None:
    store.replace([obj("a", 1, uid="u1")], "1")
    store.forget("n/a", uid="u1")
    assert store.apply(obj("a", 3, uid="u1")) == []
    store.remember(obj("a", 3, uid="u1"))
    assert store.get("n/a") is None
    assert remove(store, obj("a", 4, uid="u1")) == [(obj("a", 1, uid="u1"), None)]
    assert store.apply(obj("a", 5, uid="u2")) == [(None, obj("a", 5, uid="u2"))]


def test_list_from_before_the_deletion_does_not_bring_the_object_back(store: Store[Object]) -> None:
    store.replace([obj("a", 1, uid="u1")], "1")
    store.forget("n/a", uid="u1")
    assert store.replace([obj("a", 1, uid="u1")], "2") == []
    assert store.apply(obj("a", 3, uid="u1")) == []
    assert remove(store, obj("a", 4, uid="u1")) == [(obj("a", 1, uid="u1"), None)]


def test_forget_checks_the_uid(store: Store[Object]) -> None:
    store.replace([obj("a", 1, uid="u2")], "1")
    store.forget("n/a", uid="u1")
    store.forget("n/b", uid="u2")
    assert store.get("n/a") == obj("a", 1, uid="u2")


def test_list_replaces_everything_after_a_restore_from_backup(store: Store[Object]) -> None:
    store.replace([obj("a", 50), obj("b", 60)], "100")
    store.remember(obj("c", 120))
    changes = store.replace([obj("a", 7)], "10")
    assert store.all() == [obj("a", 7)]
    assert sorted(changes, key=str) == sorted([(obj("a", 50), obj("a", 7)), (obj("b", 60), None)], key=str)
    assert store.apply(obj("d", 11)) == [(None, obj("d", 11))]


@pytest.fixture
def red() -> Store[Object]:
    """Its watch selects red objects."""
    return Store(indexes={"color": color_of}, matches=lambda item: item["color"] == "red")


def test_response_that_the_watch_no_longer_selects_is_not_stored(red: Store[Object]) -> None:
    first = obj("a", 1)
    red.replace([first], "1")
    assert remove(red, obj("a", 4)) == [(first, None)]
    red.remember(obj("a", 5, color="blue"))
    assert red.all() == []


def test_response_that_the_watch_no_longer_selects_removes_the_object(red: Store[Object]) -> None:
    first = obj("a", 1)
    red.replace([first], "1")
    red.remember(obj("a", 5, color="blue"))
    assert (red.get("n/a"), red.by_index("color", "red")) == (None, [])
    assert red.apply(obj("a", 3)) == []
    assert red.get("n/a") is None
    assert remove(red, obj("a", 4)) == [(first, None)]


def test_object_that_is_selected_again_returns(red: Store[Object]) -> None:
    first, last = obj("a", 1), obj("a", 6)
    red.replace([first], "1")
    red.remember(obj("a", 5, color="blue"))
    red.remember(last)
    assert red.get("n/a") == last
    assert remove(red, obj("a", 4)) == []
    assert red.apply(last) == [(first, last)]


def test_old_response_that_is_not_selected_does_not_remove_a_newer_object(red: Store[Object]) -> None:
    red.replace([obj("a", 7)], "7")
    red.remember(obj("a", 5, color="blue"))
    assert red.get("n/a") == obj("a", 7)


class StoreMachine(RuleBasedStateMachine):
    """A server, a watch that lags behind it, lists in flight, and answers to our writes that arrive whenever they like.

    The store's picture of a name is placed on that name's true history; it may only move forward.
    """

    names = st.sampled_from(["a", "a", "a", "b"])
    whose = st.sampled_from(["theirs", "ours, answered at once", "ours, answered later"])

    def __init__(self) -> None:
        super().__init__()
        self.store: Store[Object] = Store(indexes={"color": color_of})
        self.version = 0
        self.live: dict[str, Object] = {}
        self.log: list[tuple[int, str, Object]] = []
        self.answers: list[Object] = []
        self.deletions: list[Object] = []
        self.snapshot: tuple[list[Object], int] | None = None
        self.seen: dict[str, int] = {"a": 0, "b": 0}  # the version up to which a name's history has been shown
        self.listener: dict[str, Object] = {}

    @initialize()
    def list_first(self) -> None:
        self.announce(self.store.replace([], "0"))

    # The server

    @rule(name=names, color=st.sampled_from(["red", "blue"]), whose=whose)
    def write(self, name: str, color: str, whose: str) -> None:
        self.version += 1
        before = self.live.get(name)
        uid = before["metadata"]["uid"] if before else f"u{self.version}"
        written = self.live[name] = obj(name, self.version, uid=uid, color=color)
        self.log.append((self.version, "MODIFIED" if before else "ADDED", written))
        if whose == "ours, answered at once":
            self.take_answer(written)
        elif whose == "ours, answered later":
            self.answers.append(written)

    @precondition(lambda self: self.live)
    @rule(data=st.data(), whose=whose)
    def delete(self, data: st.DataObject, whose: str) -> None:
        last = self.live.pop(data.draw(st.sampled_from(sorted(self.live))))
        self.version += 1
        self.log.append((self.version, "DELETED", obj(last["metadata"]["name"], self.version, uid=uid_of(last))))
        if whose == "ours, answered at once":
            self.confirm_deletion(last)
        elif whose == "ours, answered later":
            self.deletions.append(last)

    @rule()
    def write_elsewhere(self) -> None:
        """Other resources share the versions."""
        self.version += 1

    # What reaches us, and when

    @precondition(lambda self: self.answers)
    @rule(data=st.data())
    def an_answer_arrives(self, data: st.DataObject) -> None:
        self.take_answer(self.answers.pop(data.draw(st.integers(0, len(self.answers) - 1))))

    def take_answer(self, answer: Object) -> None:
        self.store.remember(answer)
        self.check()
        known = max(self.seen[answer["metadata"]["name"]], self.position)
        assert known >= version_of(answer), "we do not read our own write"

    @precondition(lambda self: self.deletions)
    @rule(data=st.data())
    def a_deletion_is_confirmed(self, data: st.DataObject) -> None:
        self.confirm_deletion(self.deletions.pop(data.draw(st.integers(0, len(self.deletions) - 1))))

    def confirm_deletion(self, gone: Object) -> None:
        name = gone["metadata"]["name"]
        self.store.forget(f"n/{name}", uid=uid_of(gone))
        shown = self.store.get(f"n/{name}")
        assert shown is None or uid_of(shown) != uid_of(gone)

    @precondition(lambda self: self.snapshot is None)
    @rule()
    def an_event_arrives(self) -> None:
        event = next((entry for entry in self.log if entry[0] > self.position), None)
        if event is None:
            self.store.advance(str(self.version))
        elif event[1] == "DELETED":
            self.announce(remove(self.store, event[2]))
        else:
            self.announce(self.store.apply(event[2]))

    @precondition(lambda self: self.snapshot is None)
    @rule()
    def a_list_is_asked_for(self) -> None:
        self.snapshot = list(self.live.values()), self.version

    @precondition(lambda self: self.snapshot is not None)
    @rule()
    def the_list_arrives(self) -> None:
        assert self.snapshot
        items, version = self.snapshot
        self.snapshot = None
        self.announce(self.store.replace(items, str(version)))

    # What must hold

    @invariant()
    def check(self) -> None:
        for name in self.seen:
            self.check_time_moves_forward(name)

    def check_time_moves_forward(self, name: str) -> None:
        history = [(version, kind) for version, kind, item in self.log if item["metadata"]["name"] == name]
        shown = self.store.get(f"n/{name}")
        before = self.seen[name]
        if shown is not None:
            assert version_of(shown) >= before, "an older state came back"
            self.seen[name] = version_of(shown)
        elif before:
            ends = [version for version, kind in history if kind == "DELETED" and version >= before]
            assert ends, "the object vanished although it was not deleted"
            self.seen[name] = ends[0]
        passed = max((version for version, _ in history if version <= self.position), default=0)
        if shown is not None:
            assert version_of(shown) >= passed, "a ghost, or older than what the watch has shown"

    @invariant()
    def indexes_agree(self) -> None:
        for color in ("red", "blue"):
            expected = [item for item in self.store.all() if item["color"] == color]
            assert sorted(self.store.by_index("color", color), key=str) == sorted(expected, key=str)

    @invariant()
    def in_the_end_everybody_knows_the_truth(self) -> None:
        if self.position == self.version:
            for name in ("a", "b"):
                truth = self.live.get(name)
                assert self.store.get(f"n/{name}") == truth
                assert self.listener.get(name) == truth

    @property
    def position(self) -> int:
        return int(self.store.last_version or 0)

    def announce(self, changes: list[Any]) -> None:
        for before, after in changes:
            name = (after or before)["metadata"]["name"]
            assert self.listener.get(name) == before, "listeners were told another past"
            assert before != after
            if after is None:
                del self.listener[name]
            else:
                self.listener[name] = after


def remove(store: Store[Object], item: Object) -> list[Any]:
    metadata = raw_metadata(item)
    return store.remove(metadata.namespaced_name, uid=metadata.uid, version=metadata.resource_version)


def uid_of(item: Object) -> str:
    return str(item["metadata"]["uid"])


def version_of(item: Object) -> int:
    return int(item["metadata"]["resourceVersion"])


TestStoreMachine = StoreMachine.TestCase
# The rarest of these meetings needs more than the usual number of tries.
TestStoreMachine.settings = settings(max_examples=max(200, settings().max_examples), stateful_step_count=25)
