"""Whether an object has all fields of another one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.objects.subset import covers

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@pytest.mark.parametrize(
    ("actual", "wanted"),
    [
        ({"a": 1, "filled": "in"}, {"a": 1}),
        ({"a": {"b": [1, {"c": 2, "d": 3}]}}, {"a": {"b": [1, {"c": 2}]}}),
        ({"cpu": "1"}, {"cpu": "1000m"}),
        ({"cpu": "500m"}, {"cpu": 0.5}),
        ({}, {}),
    ],
)
def test_defaults_and_spellings_of_the_api_server_are_no_difference(actual: object, wanted: object) -> None:
    assert covers(actual, wanted)


@pytest.mark.parametrize(
    ("actual", "wanted"),
    [
        ({"a": 1}, {"a": 2}),
        ({}, {"a": 1}),
        ({"a": [1, 2]}, {"a": [1]}),
        ({"a": [1]}, {"a": [1, 2]}),
        ({"a": [2, 1]}, {"a": [1, 2]}),
        ({"a": "x"}, {"a": {"b": 1}}),
        ({"a": "x"}, {"a": ["x"]}),
        ({"a": "one"}, {"a": "two"}),
        ({"a": True}, {"a": 1}),
        ({"a": 0}, {"a": False}),
        ({"cpu": "1"}, {"cpu": "1100m"}),
        (None, {"a": 1}),
    ],
)
def test_every_expected_field_must_be_present(actual: object, wanted: object) -> None:
    assert not covers(actual, wanted)


@given(VALUES)
def test_every_value_covers_itself(value: object) -> None:
    assert covers(value, value)


@given(st.dictionaries(st.text(max_size=3), VALUES, max_size=3), st.text(min_size=4, max_size=6), VALUES)
def test_additional_field_is_no_difference(value: dict[str, object], field: str, more: object) -> None:
    assert covers({**value, field: more}, value)
