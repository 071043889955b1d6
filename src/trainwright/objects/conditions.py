"""Status conditions of any object: a list of entries, one for each type."""

from trainwright.objects import Object


def find_condition(status: Object, type_: str) -> Object | None:
    """The condition of that type; safe on a status that a user wrote by hand."""
    for condition in status.get("conditions") or ():  # a generator takes twice as long, and plans call this often
        if isinstance(condition, dict) and condition.get("type") == type_:
            found: Object = condition
            return found
    return None


def is_condition_true(status: Object, type_: str) -> bool:
    condition = find_condition(status, type_)
    return condition is not None and condition.get("status") == "True"
