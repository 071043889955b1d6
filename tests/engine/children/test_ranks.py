"""Sets of indexes as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.engine.children.ranks import format_indexes, parse_indexes


@pytest.mark.parametrize(
    ("indexes", "text"), [((), ""), ((0,), "0"), ((4, 0, 2, 3), "0,2-4"), ((1, 2), "1-2"), ((7, 9), "7,9")]
)
def test_consecutive_indexes_are_formatted_as_ranges(indexes: tuple[int, ...], text: str) -> None:
    assert format_indexes(indexes) == text


@given(st.sets(st.integers(0, 200)))
def test_formatted_indexes_parse_to_the_same_indexes(indexes: set[int]) -> None:
    assert parse_indexes(format_indexes(indexes), below=201) == indexes


def test_indexes_beyond_the_number_of_replicas_are_ignored() -> None:
    assert parse_indexes("0,2-4", below=3) == {0, 2}


def test_invalid_indexes_are_ignored() -> None:
    assert parse_indexes("a,-1,1", below=5) == {1}
    assert parse_indexes(f"{'9' * 5000},0-{'9' * 5000},1", below=5) == {1}, "numbers that are too long are ignored too"
