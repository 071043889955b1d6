"""The limits that `make bench-regression` applies to the ratio of our operator to an earlier revision."""

import pytest

from benchmarks.operator.contenders import OURS, Contender
from benchmarks.operator.regression import beyond_limits
from benchmarks.operator.throughput import CPU_PER_POD, MEMORY, RATE, WRITES

BASE = Contender("base", "base", OURS.start)
WITHIN = {CPU_PER_POD: 1.05, WRITES: 1.05, RATE: 0.90, MEMORY: 1.004}


def findings(**changed: float) -> list[str]:
    ratios = {**WITHIN, **changed}
    return beyond_limits({label: {OURS: ratio * 50, BASE: 50.0} for label, ratio in ratios.items()}, BASE)


def test_ratios_at_the_limits_are_accepted() -> None:
    assert findings() == []


@pytest.mark.parametrize(("label", "ratio"), [(CPU_PER_POD, 1.06), (WRITES, 1.06), (RATE, 0.89), (MEMORY, 1.01)])
def test_a_ratio_beyond_its_limit_is_reported(label: str, ratio: float) -> None:
    (finding,) = findings(**{label: ratio})
    assert finding.startswith(f"{label}: {ratio:.2f} times the base")
