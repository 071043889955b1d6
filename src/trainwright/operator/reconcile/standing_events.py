"""What has been said about a job already. A plan repeats how things are; users want to read it once."""

from collections.abc import Sequence

from trainwright.engine import JobEvent
from trainwright.kube.controller.object_key import ObjectKey


class Notices:
    """Remembers, for as long as this process lives, what the last plan noticed about the job under each key."""

    def __init__(self) -> None:
        self._last: dict[ObjectKey, tuple[str, frozenset[JobEvent]]] = {}

    def news(self, key: ObjectKey, uid: str, notices: Sequence[JobEvent]) -> list[JobEvent]:
        """Those that the plan before did not have; what went away and came back, or is about another job of the same
        name, is news again."""
        last_uid, known = self._last.get(key, ("", frozenset()))
        if notices:
            self._last[key] = uid, frozenset(notices)
        else:
            self._last.pop(key, None)
        return [notice for notice in notices if uid != last_uid or notice not in known]

    def forget(self, key: ObjectKey) -> None:
        """There is no such job any more."""
        self._last.pop(key, None)
