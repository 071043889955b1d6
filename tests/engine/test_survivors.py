"""The list of mutants that no test has to notice speaks of the source as it is."""

import inspect
import pkgutil
from pathlib import Path

import pytest
import yaml

from trainwright.objects import Object

SURVIVORS: list[Object] = yaml.safe_load(Path(__file__).with_name("survivors.yaml").read_text())


def on_one_line(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())


@pytest.mark.parametrize("survivor", SURVIVORS, ids=lambda survivor: survivor.get("function"))
def test_a_survivor_is_a_change_of_a_line_that_stands_in_its_function_and_has_a_verdict(survivor: Object) -> None:
    assert list(survivor) == ["function", "was", "becomes", "verdict"]
    assert survivor["was"] in on_one_line(
        inspect.getsource(pkgutil.resolve_name(f"trainwright.engine.{survivor['function']}"))
    )
    assert survivor["becomes"] != survivor["was"]
    assert survivor["verdict"].endswith(".")


def test_no_survivor_is_judged_twice() -> None:
    mutants = [(one["function"], one["was"], one["becomes"]) for one in SURVIVORS]
    assert len(set(mutants)) == len(mutants)
