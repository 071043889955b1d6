"""Paths of volumes in arguments, where nothing can be mounted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.supervisor.containers.host_paths import replace_path, replace_paths


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("/data", "/host"),
        ("/data/x", "/host/x"),
        ("--input=/data,/data/y", "--input=/host,/host/y"),
        ("cat /data;ls", "cat /host;ls"),
        ("/database", "/database"),
        ("/data.old", "/data.old"),
        ("/data-2", "/data-2"),
        ("/mnt/data", "/mnt/data"),
        ("x/data", "x/data"),
        ("nothing", "nothing"),
    ],
)
def test_a_path_is_replaced_where_it_stands_alone_or_begins_a_longer_one(text: str, replaced: str) -> None:
    assert replace_path(text, "/data", "/host") == replaced


def test_a_host_path_is_taken_literally() -> None:
    assert replace_path("/data", "/data", r"/a\\1\\g<0>") == r"/a\\1\\g<0>"
    assert replace_path("/d.ta /data", "/d.ta", "/x") == "/x /data"


@given(st.permutations(["/a", "/a/b", "/a/b/c"]))
def test_the_longest_path_comes_first(order: list[str]) -> None:
    hosts = {path: f"/host{path.count('/')}" for path in order}
    assert replace_paths("/a/x /a/b/x /a/b/c/x", hosts) == "/host1/x /host2/x /host3/x"
