"""Which process runs which tests, and in which order, if tests run in several processes (`make test`).

The tests of a file share its fixtures, so one process runs them, one after the other: they are a group. What takes long
begins first; otherwise one process would still run it when the others have nothing left to do.
"""

from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]

_LONGEST = (
    "tests/node_behaviour",
    "tests/cli/commands/test_cluster_lifecycle.py",
    "tests/docs/test_commands.py",
    "tests/insight/faults/test_faults.py",
    "tests/examples",
    "tests/walkthroughs",
    "tests/conformance/test_differential.py",
    "tests/deploy/test_installation.py",
    "tests/conformance/test_hostile_manifests.py",
    "tests/cli/commands/test_run",
    "tests/end_to_end",
    "tests/operator/chaos",
    "tests/conformance",
    "tests/cluster/node/supervisor",
    "tests/cluster/node",
    "tests/cluster/apiserver/kubectl",
    "tests/deploy",
    "tests/operator",
)
"""Beginnings of the paths of tests, from `make test ARGS=--durations=0`. What does not stand here comes last."""

_EACH_ALONE = {"tests/docs/test_commands.py", "tests/examples/test_side_by_side.py"}
"""Files whose tests take long and share nothing: each of these tests is a group."""


def distribute(items: list[pytest.Item]) -> None:
    """Gives every test a group, and sorts the groups. The order within a group stays as it is."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            path = _path(item)
            item.add_marker(pytest.mark.xdist_group(item.nodeid if path in _EACH_ALONE else path))
    items.sort(key=lambda item: _place(_path(item)))


def _path(item: pytest.Item) -> str:
    return item.path.relative_to(_ROOT).as_posix()


def _place(path: str) -> int:
    return next((place for place, beginning in enumerate(_LONGEST) if path.startswith(beginning)), len(_LONGEST))
