"""What has been said about a job already. A plan repeats how things are; users want to read it once."""

from collections.abc import Sequence

from trainwright.engine import JobEvent


class Notices:
    """Remembers, for as long as this process lives, what each job's last plan noticed."""

    def __init__(self) -> None:
        self._last: dict[str, frozenset[JobEvent]] = {}

    def news(self, uid: str, notices: Sequence[JobEvent]) -> list[JobEvent]:
        """Those that the plan before did not have; what went away and came back is news again."""
        known = self._last.get(uid, frozenset())
        if notices:
            self._last[uid] = frozenset(notices)
        else:
            self._last.pop(uid, None)
        return [notice for notice in notices if notice not in known]

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._last.pop(uid, None)
