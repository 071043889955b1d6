"""Which items of the conformance list there are tests for: a number without one on the real API server fails here."""

import ast
import re
from pathlib import Path

ITEMS = {*range(1, 9), *range(58, 73)}
"""The rows of PyTorchJob and of the code that all kinds share; the other numbers come with their kinds."""
_NUMBERED = re.compile(r"test_item_(?P<number>\d\d)_\w+")
_ON_THE_REAL_SERVER = {"scene", "stage", "client", "control_plane", "webhooks"}
"""The fixtures that bring it."""


def test_every_item_has_a_test_on_the_real_api_server() -> None:
    assert {number for number, fixtures in numbered_tests() if fixtures & _ON_THE_REAL_SERVER} == ITEMS


def test_no_test_has_a_number_that_is_not_on_the_list() -> None:
    assert {number for number, _ in numbered_tests()} <= ITEMS


def numbered_tests() -> list[tuple[int, set[str]]]:
    """The number and the fixtures of every numbered test in this directory."""
    return [
        (int(named["number"]), {argument.arg for argument in function.args.args})
        for path in sorted(Path(__file__).parent.glob("test_*.py"))
        for function in ast.parse(path.read_text()).body
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and (named := _NUMBERED.fullmatch(function.name))
    ]
