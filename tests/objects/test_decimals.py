"""Numbers in texts of users."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.objects.decimals import parse_decimal


@pytest.mark.parametrize("text", ["", "-1", "+1", "1.0", " 1", "\u0661", "\u00b2", "1" * 19, "9" * 5000])
def test_other_texts_are_no_numbers(text: str) -> None:
    assert parse_decimal(text) is None


@given(st.integers(0, 10**18 - 1))
def test_numbers_are_read(number: int) -> None:
    assert parse_decimal(str(number)) == number
