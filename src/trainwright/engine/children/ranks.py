"""Ranks of a job: a role and an index. The status has sets of indexes as text, such as `0,2-4`."""

import re
from collections.abc import Iterable

import msgspec

_RANGE = re.compile(r"(?P<first>[0-9]{1,9})(-(?P<last>[0-9]{1,9}))?")


class Rank(msgspec.Struct, frozen=True, gc=False):
    role: str
    index: int


def format_indexes(indexes: Iterable[int]) -> str:
    """`{0, 2, 3, 4}` -> `0,2-4`, as Kubernetes writes the completed indexes of a Job."""
    ranges: list[list[int]] = []
    for index in sorted(set(indexes)):
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def parse_indexes(text: str, *, below: int) -> set[int]:
    """The indexes below `below` in `text`. Anything that is not an index or a range of indexes is ignored."""
    indexes: set[int] = set()
    for part in text.split(","):
        if found := _RANGE.fullmatch(part):
            last = int(found["last"] or found["first"])
            indexes.update(range(int(found["first"]), min(last + 1, below)))
    return indexes
