"""The list of where changes belong names files and folders that exist."""

from pathlib import Path

import pytest
import yaml

HERE = Path(__file__).parent
CHANGES = yaml.safe_load((HERE / "where_changes_go.yaml").read_text())


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change["change"])
def test_the_places_of_a_change_exist(change: dict[str, list[str]]) -> None:
    source = HERE.parents[1] / "src" / "trainwright"
    assert change["files"]
    for path in change["files"]:
        assert (source / path).is_dir() if path.endswith("/") else (source / path).is_file()
