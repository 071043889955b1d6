"""The files and folders that CONTRIBUTING and the explanations name exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "CONTRIBUTING.md",
    *sorted(ROOT.glob("docs/explanation/*.md")),
    *sorted(ROOT.glob("docs/decisions/*.md")),
]
BASES = (ROOT, ROOT / "src" / "trainwright")
"""Paths are relative to the repository or to the package."""


def named_paths(page: str) -> list[str]:
    """Paths in backticks with a slash that end in .py, .md, .yaml or a slash; absolute ones are the machine's."""
    return re.findall(r"`(?![/~])([^`\s]+/[^`\s]*?(?:\.py|\.md|\.yaml)|[^`\s]+/)`", page)


def exists(path: str) -> bool:
    """`<kind>` and the like stand for any name."""
    pattern = re.sub(r"<\w+>", "*", path)
    return any(next(base.glob(pattern), None) for base in BASES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    assert [path for path in named_paths(page.read_text()) if not exists(path)] == []


def test_paths_are_found_in_backticks_alone() -> None:
    page = "`api/job.py`, `engine/policies/` and `make test`, not api/none.py, `/etc/hosts.yaml`, `a b/c.py`"
    assert named_paths(page) == ["api/job.py", "engine/policies/"]


@pytest.mark.parametrize("path", ["api/job.py", "tests/docs/", "api/kinds/<kind>.py"])
def test_paths_are_relative_to_the_repository_or_the_package(path: str) -> None:
    assert exists(path)
    assert not exists(f"missing/{path}")
