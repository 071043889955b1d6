"""Every item of docs/explanation/conformance.md has a test on the real API server, in the file that the page names."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "explanation" / "conformance.md"
_ROW = re.compile(r"\| (?P<number>\d+) \| .+ \| `(?P<file>\w+\.py)` \|")
_NUMBERED = re.compile(r"test_items?_(?P<numbers>\d\d(_\d\d)*)_\w+")
_REAL_SERVER_FIXTURES = {"harness", "cluster", "client", "webhooks"}
"""Fixtures that use the real API server."""

Item = tuple[int, str]
"""A number, and the file with its tests."""


def test_the_page_lists_exactly_the_items_with_a_test_on_the_real_api_server() -> None:
    listed = [(int(row["number"]), row["file"]) for row in _ROW.finditer(PAGE.read_text())]
    assert sorted(number for number, _ in listed) == [*range(1, 78)]
    assert {item for item, fixtures in numbered_tests() if fixtures & _REAL_SERVER_FIXTURES} == set(listed)
    assert {item for item, _ in numbered_tests()} == set(listed)


def numbered_tests() -> Iterator[tuple[Item, set[str]]]:
    """Every numbered test of this directory, with its fixtures."""
    for path in sorted(HERE.glob("test_*.py")):
        for function in ast.parse(path.read_text()).body:
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if named := _NUMBERED.fullmatch(function.name):
                fixtures = {argument.arg for argument in function.args.args}
                for number in named["numbers"].split("_"):
                    yield (int(number), path.name), fixtures
