"""Both sides of a case, and what explains a difference between them: a row of docs/compatibility.md."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.differential.cases import Case
from tests.support.differential.snapshots import Difference, Snapshot


@dataclass(frozen=True)
class Comparison:
    """Both sides of a case after one step."""

    case: Case
    go: Snapshot
    ours: Snapshot

    def failed(self, side: Snapshot, why: str) -> bool:
        return any(kind == "Failed" and why in message for kind, _, message in side.conditions)

    def succeeded(self, side: Snapshot) -> bool:
        return "Succeeded" in side.states


@dataclass(frozen=True)
class Explanation:
    """A row that covers single differences. `row` is the start of a row or heading of the page; `sometimes` is True if
    it shows in some runs only."""

    row: str
    matches: Callable[[Difference, Comparison], object]
    sometimes: bool = False


@dataclass(frozen=True)
class Divergence:
    """A row that changes the outcome of a job: from then on only the contents of its children are comparable."""

    row: str
    since: Callable[[Comparison], object]
    sometimes: bool = False
