"""What a .dockerignore file leaves out."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.images.dockerfile.ignore import IgnoreRules, PatternError, read_ignore_rules


@pytest.mark.parametrize(
    ("lines", "ignored", "kept"),
    [
        ("# comment\n*.pyc\n", ["a.pyc"], ["sub/a.pyc", "# comment"]),
        ("**/*.pyc", ["a.pyc", "sub/a.pyc", "a/b/c.pyc"], ["a.py"]),
        ("data", ["data", "data/x", "data/y/z"], ["sub/data", "database"]),
        ("/data/", ["data", "data/x"], ["sub/data"]),
        ("./a/../b", ["b"], ["a"]),
        ("*\n!keep\n", ["a", "a/keep"], ["keep", "keep/x"]),
        ("docs\n!docs/README.md\ndocs/README.md.bak", ["docs/x", "docs/README.md.bak"], ["docs/README.md"]),
        ("a/**/z", ["a/z", "a/b/z", "a/b/c/z"], ["z", "ab/z"]),
        ("a/**", ["a/b", "a/b/c"], ["a", "ab"]),
        ("file?.[ch]", ["file1.c", "file2.h"], ["file10.c", "file/.c", "file1.x"]),
        ("x[^a-c]", ["xd"], ["xa", "x/"]),
        ("a\\*b", ["a*b"], ["axb"]),
        ("  spaced  \n\n", ["spaced"], []),
        ("\ufeffbom", ["bom"], []),
        ("a.b", ["a.b"], ["axb"]),
    ],
)
def test_patterns_are_those_of_go(lines: str, ignored: list[str], kept: list[str]) -> None:
    rules = read_ignore_rules(lines)

    assert [path for path in ignored if not rules.ignores(path)] == []
    assert [path for path in kept if rules.ignores(path)] == []


@pytest.mark.parametrize("pattern", ["[", "a[b", "\\", "!", "[z-a]"])
def test_a_pattern_with_an_error_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        read_ignore_rules(pattern)


_paths = st.lists(st.sampled_from(["a", "b", "ab", "a.c", "*x"]), min_size=1, max_size=4).map("/".join)


@given(st.lists(st.text(st.sampled_from("ab*?[]!\\/.c-^ "), max_size=8), max_size=5), _paths)
def test_any_pattern_is_used_or_refused(lines: list[str], path: str) -> None:
    with suppress(PatternError):
        rules = IgnoreRules(lines)

        assert rules.ignores(path) in {True, False}


@given(st.lists(_paths, max_size=4), _paths)
def test_plain_paths_match_themselves_and_what_is_in_them(patterns: list[str], path: str) -> None:
    plain = [pattern for pattern in patterns if "*" not in pattern]

    expected = any(path == pattern or path.startswith(f"{pattern}/") for pattern in plain)

    assert IgnoreRules(plain).ignores(path) == expected
