"""Which process runs which tests, and in which order, if tests run in several processes (`make test`).

The tests of a file share its fixtures, so one process runs them, one after the other: they are a group. What takes long
begins first; otherwise one process would still run it when the others have nothing left to do.
"""

from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]

_EACH_ALONE = {
    "tests/docs/test_commands.py",
    "tests/examples/test_side_by_side.py",
}
"""Files whose tests take long and share nothing: each of their tests is a group."""

_LONGEST = ("tests/docs/test_commands.py",)
"""The files that take longest, the longest first, from `make test ARGS=--durations=0`."""

_LAST = "tests/node_behaviour"
"""Its cases run in a thread, and Hypothesis does not like that another thread uses `random`."""


def distribute(items: list[pytest.Item]) -> None:
    """Gives every test a group, and sorts the groups. The order within a group stays as it is."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(_group(item)))
    places = {path: place for place, path in enumerate(_LONGEST)}
    items.sort(key=lambda item: (_path(item).startswith(_LAST), places.get(_path(item), len(places))))


def _group(item: pytest.Item) -> str:
    return item.nodeid if _path(item) in _EACH_ALONE else _path(item)


def _path(item: pytest.Item) -> str:
    return item.path.relative_to(_ROOT).as_posix()
