"""Error messages have the API server's format and stay readable for any value."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.api.errors import InvalidJob, aggregate, invalid, not_supported
from trainwright.objects.field_errors import forbidden, quoted, required


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", '"plain"'),
        ('say "so"\\', '"say \\"so\\"\\\\"'),
        ("a\nb\tc\a", '"a\\nb\\tc\\a"'),
        ("\x00\x7f", '"\\x00\\x7f"'),
        ("\x80\u200b\ud800", '"\\u0080\\u200b\\ud800"'),
        ("\U000e0001", '"\\U000e0001"'),
        ("grün 💥", '"grün 💥"'),
    ],
)
def test_text_is_quoted_as_go_does(text: str, shown: str) -> None:
    assert quoted(text) == shown


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_plain_text_is_quoted_as_in_json(text: str) -> None:
    assert json.loads(quoted(text)) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (required("a.b", "must be specified"), "a.b: Required value: must be specified"),
        (forbidden("a", "no"), "a: Forbidden: no"),
        (invalid("a", None, "no"), "a: Invalid value: null: no"),
        (invalid("a", True, "no"), "a: Invalid value: true: no"),
        (invalid("a", 2**255, "no"), f"a: Invalid value: {2**255}: no"),
        (invalid("a", 2**256, "no"), "a: Invalid value: a number of 257 bits: no"),
        (invalid("a", "x" * 256, "no"), f'a: Invalid value: "{"x" * 256}": no'),
        (invalid("a", "x" * 257, "no"), f'a: Invalid value: "{"x" * 256}...": no'),
        (not_supported("a[\n]", "x", ["y", "z"]), 'a[\\n]: Unsupported value: "x": supported values: "y", "z"'),
        (required('a["]', "no"), 'a["]: Required value: no'),
    ],
)
def test_an_error_names_the_field_and_shows_the_value(error: object, text: str) -> None:
    assert str(error) == text


def test_one_error_stands_alone_and_several_in_brackets() -> None:
    one, two = required("a", "x"), required("b", "y")
    assert aggregate([one]) == str(InvalidJob([one])) == "a: Required value: x"
    assert aggregate([one, two]) == "[a: Required value: x, b: Required value: y]"
