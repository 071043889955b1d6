"""Trees of files that hostile programs have made."""

import os
from pathlib import Path

from trainwright.cluster.linux.trees import remove_tree, walk


def make_deep(top: Path, depth: int) -> None:
    """Deeper than Python calls itself, and than a path may be long."""
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for number in range(depth):
        os.mkdir("directory", dir_fd=here)
        below = os.open("directory", os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(here)
        here = below
        if number % 100 == 0:
            os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=here))
    os.close(here)


def test_a_tree_of_any_depth_is_walked_and_removed(tmp_path: Path) -> None:
    deep = tmp_path / "deep"
    make_deep(deep, 3000)
    assert sum(1 for _ in walk(str(deep))) > 300
    remove_tree(str(deep))
    assert not deep.exists()


def test_modes_and_links_do_not_keep_a_tree(tmp_path: Path) -> None:
    top, outside = tmp_path / "top", tmp_path / "outside"
    (top / "work/work").mkdir(parents=True)
    (outside / "kept").mkdir(parents=True)
    (top / "link").symlink_to(outside)
    (top / "work/work/link").symlink_to(outside / "kept")
    (top / "work/work/file").write_text("x")
    (top / "work/work").chmod(0)
    (top / "work").chmod(0)
    remove_tree(str(top))
    assert not top.exists()
    assert (outside / "kept").is_dir()
    remove_tree(str(top))
    (tmp_path / "alias").symlink_to(outside)
    remove_tree(str(tmp_path / "alias"))
    assert (outside / "kept").is_dir()


def test_walk_lists_links_as_files_and_lets_the_caller_choose(tmp_path: Path) -> None:
    for name in ("a/inner", "b"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    found = []
    for parent, directories, names in walk(str(tmp_path)):
        directories.sort()
        if "a" in directories:
            directories.remove("a")
        found.append((os.path.relpath(parent, tmp_path), list(directories), names))
    assert found == [(".", ["b"], ["link"]), ("b", [], [])]
