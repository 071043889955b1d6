"""Which emptyDir volumes are watched, and when one is too large."""

import os
from pathlib import Path
from typing import Any

import pytest

from trainwright.cluster.node.pods.local_storage import exceeded_limit, limited_volumes


def pod(**empty: Any) -> dict[str, Any]:
    return {"spec": {"volumes": [{"name": "v", "emptyDir": empty}, {"name": "w", "configMap": {"name": "c"}}]}}


@pytest.mark.parametrize(
    ("empty", "has_tmpfs", "limits"),
    [
        ({}, True, []),
        ({"sizeLimit": "1Mi"}, True, [("v", "1Mi")]),
        ({"sizeLimit": "1Mi", "medium": "Memory"}, True, []),
        ({"sizeLimit": "1Mi", "medium": "Memory"}, False, [("v", "1Mi")]),
    ],
)
def test_volumes_on_the_disk_with_a_limit(empty: dict[str, Any], has_tmpfs: bool, limits: list[Any]) -> None:
    assert list(limited_volumes(pod(**empty), has_tmpfs=has_tmpfs)) == limits


def test_files_in_all_directories_count_once(tmp_path: Path) -> None:
    (deep := tmp_path / "v" / "deep").mkdir(parents=True)
    (deep / "file").write_bytes(bytes(600_000))
    os.link(deep / "file", deep / "again")
    assert exceeded_limit([("v", "1Mi")], tmp_path) == ""
    (tmp_path / "v" / "more").write_bytes(bytes(600_000))
    assert exceeded_limit([("v", "1Mi")], tmp_path) == 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". '
    assert exceeded_limit([("missing", "1Mi")], tmp_path) == ""
