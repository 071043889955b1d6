"""Layers made of directories."""

import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from trainwright.cluster.images.layers.pack import pack_layer
from trainwright.cluster.images.layers.tar_split import read_tar


def pack(directory: Path) -> tuple[bytes, str]:
    """The tar stream and its digest."""
    record = io.BytesIO()
    layer = pack_layer(str(directory), record)
    record.seek(0)
    stream = b"".join(read_tar(record, str(directory)))
    assert len(stream) == layer.size
    return stream, layer.diff_id


def members(layer: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(layer), mode="r:") as archive:
        return {member.name: member for member in archive}


def make_tree(top: Path, order: list[str]) -> None:
    (top / "d").mkdir(parents=True)
    for name in order:
        (top / name).write_text(name)
        os.utime(top / name, (1, 1_600_000_000))
    (top / "link").symlink_to("d/a")
    os.utime(top / "link", (1, 1_600_000_000), follow_symlinks=False)
    os.utime(top / "d", (1, 1_600_000_000))


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    make_tree(tmp_path / "one", ["a", "z", "d/a"])
    make_tree(tmp_path / "two", ["d/a", "z", "a"])

    first, second = pack(tmp_path / "one"), pack(tmp_path / "two")

    assert first == second
    assert hashlib.sha256(first[0]).hexdigest() == first[1].removeprefix("sha256:")


def test_modes_times_links_and_owners_are_kept(tmp_path: Path) -> None:
    make_tree(tmp_path, ["a", "z", "d/a"])
    (tmp_path / "a").chmod(0o4755)
    (tmp_path / "hard").hardlink_to(tmp_path / "a")

    found = members(pack(tmp_path)[0])

    assert list(found) == ["a", "d", "hard", "link", "z", "d/a"]
    assert found["a"].mode == 0o4755
    assert found["z"].mtime == 1_600_000_000
    assert (found["hard"].type, found["hard"].linkname) == (tarfile.LNKTYPE, "a")
    assert (found["link"].type, found["link"].linkname) == (tarfile.SYMTYPE, "d/a")
    assert (found["z"].uid, found["z"].uname) == (os.getuid(), "")


def test_names_that_do_not_fit_are_kept(tmp_path: Path) -> None:
    deep = tmp_path / "/".join(["d" * 100] * 3)
    deep.mkdir(parents=True)
    (deep / ("é" * 60)).write_text("x")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_text("not UTF-8")

    names = list(members(pack(tmp_path)[0]))

    assert f"{deep.relative_to(tmp_path)}/{'é' * 60}" in names
    assert os.fsdecode(b"\xff") in names


@pytest.mark.skipif(os.getuid() != 0, reason="device nodes and trusted attributes are for root")
def test_deleted_files_become_whiteouts(tmp_path: Path) -> None:
    (tmp_path / "d" / "replaced").mkdir(parents=True)
    os.mknod(tmp_path / "d" / "gone", 0o020000, os.makedev(0, 0))
    try:
        os.setxattr(tmp_path / "d" / "replaced", "trusted.overlay.opaque", b"y")
    except OSError:
        pytest.skip("this file system has no trusted attributes")

    assert list(members(pack(tmp_path)[0])) == ["d", "d/.wh.gone", "d/replaced", "d/replaced/.wh..wh..opq"]


@pytest.mark.skipif(os.getuid() != 0, reason="trusted attributes are for root")
def test_a_directory_that_overlayfs_has_renamed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "renamed").mkdir()
    try:
        os.setxattr(tmp_path / "renamed", "trusted.overlay.redirect", b"/before")
    except OSError:
        pytest.skip("this file system has no trusted attributes")

    with pytest.raises(OSError, match="redirect_dir=off"):
        pack(tmp_path)
