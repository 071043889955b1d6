from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.controllers.garbage_collector import (
    Delete,
    Keep,
    OwnerState,
    RemoveReferences,
    blocking_dependents,
    decide,
)
from trainwright.objects.metadata import ObjectMeta, OwnerReference

SOLID, DANGLING, WAITING = OwnerState.SOLID, OwnerState.DANGLING, OwnerState.WAITING_FOR_DEPENDENTS


def owned(
    *uids: str, blocks: bool = True, uid: str = "child", finalizers: tuple[str, ...] = (), going: bool = False
) -> ObjectMeta:
    references = tuple(OwnerReference(uid=one, block_owner_deletion=blocks) for one in uids)
    moment = "2026-11-15T04:00:00Z" if going else None
    return ObjectMeta(name=uid, uid=uid, owner_references=references, finalizers=finalizers, deletion_timestamp=moment)


def test_an_object_without_owners_or_with_all_of_them_stays() -> None:
    assert decide(owned(), [], has_dependents=True) == Keep()
    assert decide(owned("a", "b"), [SOLID, SOLID], has_dependents=True) == Keep()


def test_one_solid_owner_keeps_the_object_and_other_references_are_removed() -> None:
    assert decide(owned("a", "b", "c"), [DANGLING, SOLID, WAITING], has_dependents=True) == RemoveReferences(
        frozenset({"a", "c"})
    )


def test_object_without_owners_is_deleted_by_its_finalizers() -> None:
    assert decide(owned("a"), [DANGLING], has_dependents=True) == Delete("Background")
    assert decide(owned("a", finalizers=("orphan",)), [DANGLING], has_dependents=True) == Delete("Orphan")
    assert decide(owned("a", finalizers=("foregroundDeletion",)), [DANGLING], has_dependents=False) == Delete(
        "Foreground"
    )


def test_an_owner_that_waits_makes_its_dependents_wait_for_theirs() -> None:
    assert decide(owned("a"), [WAITING], has_dependents=True) == Delete("Foreground")
    assert decide(owned("a"), [WAITING], has_dependents=False) == Delete("Background")


@given(st.lists(st.sampled_from(OwnerState), max_size=5), st.booleans())
def test_object_is_deleted_if_and_only_if_no_owner_is_solid(states: list[OwnerState], has_dependents: bool) -> None:
    decision = decide(owned(*(str(number) for number in range(len(states)))), states, has_dependents=has_dependents)
    assert isinstance(decision, Delete) == (bool(states) and SOLID not in states)
    assert isinstance(decision, Keep) == all(state is SOLID for state in states)


def test_a_foreground_deletion_waits_only_for_dependents_that_block_it() -> None:
    owner = owned(uid="owner", going=True, finalizers=("foregroundDeletion",))
    blocking, free = owned("owner", uid="blocking"), owned("owner", uid="free", blocks=False)
    elsewhere = owned("other", uid="elsewhere")
    assert blocking_dependents(owner, [blocking, free, elsewhere]) == [blocking]


def test_objects_that_own_each_other_do_not_block() -> None:
    one = owned("two", uid="one", going=True, finalizers=("foregroundDeletion",))
    two = owned("one", uid="two", going=True, finalizers=("foregroundDeletion",))
    assert blocking_dependents(one, [two]) == []
    assert blocking_dependents(one, [owned("one", uid="two")]) != []  # it has not begun to go yet
