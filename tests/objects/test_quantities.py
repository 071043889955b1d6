from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.objects.quantities import (
    SIDECAR,
    QuantityError,
    add_amounts,
    format_quantity,
    largest_amounts,
    parse_amounts,
    parse_quantity,
    peak_amounts,
)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("0", 0),
        ("2", 2),
        ("500m", Fraction(1, 2)),
        ("0.1", Fraction(1, 10)),
        (".5", Fraction(1, 2)),
        ("1.", 1),
        ("+3", 3),
        ("-1k", -1000),
        ("1Ki", 1024),
        ("1.5Gi", 3 * 2**29),
        ("10G", 10**10),
        ("1e3", 1000),
        ("1E3", 1000),
        ("2E", 2 * 10**18),
        ("2Ei", 2 * 2**60),
        ("12e-1", Fraction(6, 5)),
        ("7n", Fraction(7, 10**9)),
        ("7u", Fraction(7, 10**6)),
        (4, 4),
        (0.5, Fraction(1, 2)),
    ],
)
def test_every_spelling_is_read_exactly(text: object, amount: Fraction) -> None:
    assert parse_quantity(text) == amount


@pytest.mark.parametrize("text", ["١٢Mi", "１Gi"])
def test_digits_of_other_scripts_are_none(text: str) -> None:
    """Go's clients refuse such an object: one would break their lists for every user."""
    with pytest.raises(QuantityError):
        parse_quantity(text)


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1GiB", "1gi", "1K", "--1", "1e", "0x10", "nan", None, True, [1]])
def test_invalid_quantity_is_reported_with_the_value_and_an_example(text: object) -> None:
    with pytest.raises(QuantityError) as error:
        parse_quantity(text)
    assert repr(text) in str(error.value)
    assert "1.5Gi" in str(error.value)


@pytest.mark.parametrize("value", ["9" * 5000, f"{'9' * 4000}e999", 10**5000, f"1{'0' * 100}", 10**100], ids=type)
def test_error_about_an_endless_number_is_short(value: object) -> None:
    with pytest.raises(QuantityError) as error:
        parse_quantity(value)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize("value", ["9" * 100, int("9" * 100), "1e999", 1e300, "10Ei"])
def test_there_is_a_largest_quantity(value: object) -> None:
    assert parse_quantity(value) == 2**63 - 1


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(5), "5"),
        (Fraction(2**30), "1Gi"),
        (Fraction(3 * 2**29), "1536Mi"),
        (Fraction(3, 2), "1500m"),
        (Fraction(1, 10**7), "100n"),
        (Fraction(1, 3 * 10**9), "1n"),
        (Fraction(-1024), "-1Ki"),
    ],
)
def test_quantities_are_formatted_in_canonical_form(amount: Fraction, text: str) -> None:
    assert format_quantity(amount) == text


@given(st.integers(min_value=-(10**30), max_value=10**30))
def test_formatted_quantity_parses_to_the_same_amount(billionths: int) -> None:
    amount = Fraction(billionths, 10**9)
    assert parse_quantity(format_quantity(amount)) == amount


def test_amounts_add_up_and_compare_by_resource() -> None:
    one = parse_amounts({"cpu": "500m", "memory": "1Gi"})
    other = parse_amounts({"cpu": 2, "nvidia.com/gpu": "1"})
    assert add_amounts([one, other, one]) == {"cpu": 3, "memory": 2**31, "nvidia.com/gpu": 1}
    assert largest_amounts([one, other]) == {"cpu": 2, "memory": 2**30, "nvidia.com/gpu": 1}
    assert largest_amounts([]) == {}


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
