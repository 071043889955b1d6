"""How much a run tests: a seeded sample with every change, everything under `make test-all`."""

import os
import random
from collections import defaultdict

import pytest

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") == "all"
"""True under `make test-all`."""

_SEED = 1


def without_thorough(items: list[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The items that run with every change, and those that have to wait for `make test-all`.

    `@pytest.mark.thorough` marks tests that wait. `thorough("real")` means their cases with that parameter alone, and
    `thorough("real", sample=3)` keeps three of those cases in each file, chosen with a seed.
    """
    if THOROUGH:
        return items, []
    marked = defaultdict(list)
    for item in items:
        if (mark := item.get_closest_marker("thorough")) is not None and _concerns(mark, item):
            marked[item.path, mark.args, mark.kwargs.get("sample", 0)].append(item)
    waiting: set[pytest.Item] = set()
    for (_, _, sample), found in marked.items():
        names = sorted(item.nodeid for item in found)
        kept = random.Random(_SEED).sample(names, min(sample, len(names)))
        waiting.update(item for item in found if item.nodeid not in kept)
    return [item for item in items if item not in waiting], [item for item in items if item in waiting]


def _concerns(mark: pytest.Mark, item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "id", "")
    return not mark.args or any(f"-{name}-" in f"-{parameters}-" for name in mark.args)
