"""Lines of code are counted without blank lines, comments and docstrings."""

import pytest

from tools.count_code_lines import count_code_lines


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", 0),
        ("# a comment\n\n\n", 0),
        ('"""A docstring\n\nof three lines."""\n\nx = 1  # a comment behind code\n', 1),
        ('class A:\n    """Its docstring."""\n\n    def f(self):\n        """One more."""\n        return 1\n', 3),
        ('text = """one\n\nthree"""\n', 3),
        ("total = sum(\n    [1, 2],\n)\n", 3),
    ],
)
def test_lines_without_code_do_not_count(source: str, lines: int) -> None:
    assert count_code_lines(source) == lines
