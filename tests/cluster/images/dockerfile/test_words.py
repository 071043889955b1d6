"""Quotes, escapes and variables in the words of a Dockerfile."""

import shlex
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.images.dockerfile.errors import ExpansionError
from trainwright.cluster.images.dockerfile.words import expand, expand_words

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
