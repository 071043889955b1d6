"""One place in a job: a role and an index. Sets of indexes travel as text, such as `0,2-4`."""

import re
from collections.abc import Iterable

import msgspec

_RUN = re.compile(r"(?P<first>[0-9]{1,9})(-(?P<last>[0-9]{1,9}))?")


class Rank(msgspec.Struct, frozen=True, gc=False):
    role: str
    index: int


def format_indexes(indexes: Iterable[int]) -> str:
    """`{0, 2, 3, 4}` -> `0,2-4`, as Kubernetes writes the completed indexes of a Job."""
    runs: list[list[int]] = []
    for index in sorted(set(indexes)):
        if runs and runs[-1][1] == index - 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def parse_indexes(text: str, *, below: int) -> set[int]:
    """The indexes smaller than `below` that `text` names; anything that is not an index or a run of them is skipped."""
    indexes: set[int] = set()
    for part in text.split(","):
        if run := _RUN.fullmatch(part):
            last = int(run["last"] or run["first"])
            indexes.update(range(int(run["first"]), min(last + 1, below)))
    return indexes
