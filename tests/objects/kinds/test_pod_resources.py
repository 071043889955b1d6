"""What a pod needs at once."""

from fractions import Fraction

import pytest

from trainwright.objects.kinds.pod_resources import SIDECAR, peak_amounts


@pytest.mark.parametrize(
    ("containers", "init_containers", "expected"),
    [
        ([], [], 0),
        ([1, 2], [], 3),
        ([1, 2], [(None, 2)], 3),
        ([1, 2], [(None, 4)], 4),
        ([1], [(SIDECAR, 2)], 3),
        ([1], [(SIDECAR, 1), (None, 4)], 5),
        ([1], [(None, 4), (SIDECAR, 1)], 4),
        ([1], [(SIDECAR, 1), (SIDECAR, 2), (None, 2)], 5),
    ],
)
def test_a_pod_needs_its_containers_or_the_largest_init_container(
    containers: list[int], init_containers: list[tuple[str | None, int]], expected: int
) -> None:
    found = peak_amounts(
        [{"cpu": Fraction(amount)} for amount in containers],
        [(policy, {"cpu": Fraction(amount)}) for policy, amount in init_containers],
    )
    assert found.get("cpu", 0) == expected


def test_each_resource_has_its_own_peak() -> None:
    found = peak_amounts(
        [{"cpu": Fraction(1), "memory": Fraction(9)}], [(None, {"cpu": Fraction(3), "memory": Fraction(2)})]
    )
    assert found == {"cpu": 3, "memory": 9}
