"""Quotes, escapes and variables in the words of a Dockerfile."""

import shlex
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.images.dockerfile.words import ExpansionError, expand, expand_words

VARIABLES = {"a": "one", "empty": "", "path": "/usr/local/lib.tar.gz", "two": "x y"}


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("$a/$b/x", "one//x"),
        ("${a}b", "oneb"),
        ("\\$a", "$a"),
        ("'$a'", "$a"),
        ('"$a b"', "one b"),
        ('"\\$a \\x \\""', '$a \\x "'),
        ("${b:-word}${empty:-w}${empty-w}", "wordw"),
        ("${a:+set}${b:+set}${empty+set}", "setset"),
        ("${b:-${a:-x}}", "one"),
        ("${path#*/}", "usr/local/lib.tar.gz"),
        ("${path##*/}", "lib.tar.gz"),
        ("${path%.*}", "/usr/local/lib.tar"),
        ("${path%%.*}", "/usr/local/lib"),
        ("${path/usr/opt}", "/opt/local/lib.tar.gz"),
        ("a$", "a$"),
        ("$1", ""),
    ],
)
def test_variables_are_expanded_as_docker_does(word: str, expected: str) -> None:
    assert expand(word, VARIABLES) == expected


def test_values_are_split_at_blanks_outside_of_quotes() -> None:
    assert expand_words('80 $two "$two" a\\ b', VARIABLES) == ["80", "x", "y", "x y", "a b"]


@pytest.mark.parametrize("word", ['"a', "'a", "${a", "${}", "${a!}", "${b:?is needed}", "${b?}"])
def test_what_cannot_be_expanded_is_an_error(word: str) -> None:
    with pytest.raises(ExpansionError):
        expand(word, VARIABLES)


@given(st.text())
def test_quoted_text_is_itself(text: str) -> None:
    quoted = shlex.quote(text)

    assert expand(quoted, VARIABLES) == text
    assert expand_words(quoted, VARIABLES) == [text]


@given(st.text(st.sampled_from("ab $\\\"'{}:-+?#%/*é"), max_size=20))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    with suppress(ExpansionError):
        assert "".join(expand(text, VARIABLES).split()) == "".join("".join(expand_words(text, VARIABLES)).split())


def test_variables_that_double_are_refused() -> None:
    values = {"E0": "0123456789abcdef"}
    for number in range(1, 17):
        values[f"E{number}"] = expand(f'"$E{number - 1}$E{number - 1}"', values)
    with pytest.raises(ExpansionError, match="more than 1,048,576 characters"):
        expand('"$E16$E16"', values)


def test_replacements_are_bounded_before_they_are_built() -> None:
    with pytest.raises(ExpansionError, match="after replacement"):
        expand("${A//a/" + "b" * 100_000 + "}", {"A": "a" * 100_000})


def test_substitutions_are_not_nested_without_end() -> None:
    assert expand("${A:-" * 40 + "x" + "}" * 40, {}) == "x"
    with pytest.raises(ExpansionError, match="nested deeper than 50"):
        expand("${A:-" * 5000 + "}" * 5000, {})


@pytest.mark.parametrize("operator", ["#", "##", "%", "%%", "/", "//"])
def test_no_pattern_takes_long(operator: str) -> None:
    """Python's own regular expressions would take years."""
    value = "a" * 5000
    assert expand("${A" + operator + "*a" * 20 + "b}", {"A": value}) == value


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("${A#*é}", "b-é-b"),
        ("${A##*é}", "-b"),
        ("${A%é*}", "b-éb-"),
        ("${A%%é*}", "b-"),
        ("${A//é?/+}", "b-+-+b"),
        ("${A///+}", "+b+-+é+b+-+é+-+b+"),
        ("${A/*/x}", "x"),
    ],
)
def test_patterns_match_characters(word: str, expected: str) -> None:
    assert expand(word, {"A": "b-éb-é-b"}) == expected
