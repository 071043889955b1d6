"""The list of mutants that survive matches the source."""

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
def test_survivor_changes_a_line_of_its_function_and_has_a_verdict(survivor: Object) -> None:
    assert list(survivor) == ["function", "was", "becomes", "verdict"]
    assert survivor["was"] in on_one_line(
        inspect.getsource(pkgutil.resolve_name(f"trainwright.engine.{survivor['function']}"))
    )
    assert survivor["becomes"] != survivor["was"]
    assert survivor["verdict"].endswith(".")


def test_every_survivor_is_listed_once() -> None:
    mutants = [(one["function"], one["was"], one["becomes"]) for one in SURVIVORS]
    assert len(set(mutants)) == len(mutants)
