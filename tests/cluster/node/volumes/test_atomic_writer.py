"""Files of volumes are replaced all at once, and nothing outside of the volume is touched."""

import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.node.volumes.atomic_writer import read_file, write_files
from trainwright.cluster.node.volumes.files import File, Files


def text(**contents: str) -> Files:
    return {name.replace("__", "/"): File(content=value.encode(), mode=0o644) for name, value in contents.items()}


def seen(volume: Path) -> dict[str, bytes]:
    """What a program sees that does not look at hidden names."""
    visible = [path for path in volume.iterdir() if not path.name.startswith("..")]
    files = [below for path in visible for below in ([path] if path.is_file() else path.rglob("*")) if below.is_file()]
    return {str(path.relative_to(volume)): path.read_bytes() for path in files}


def link(path: Path) -> str:
    return str(path.readlink())


def test_files_are_links_through_one_directory(tmp_path: Path) -> None:
    assert write_files(tmp_path, text(a="1", deep__b="2"))
    assert seen(tmp_path) == {"a": b"1", "deep/b": b"2"}
    assert link(tmp_path / "a") == "..data/a"
    assert link(tmp_path / "deep") == "..data/deep"
    assert link(tmp_path / "..data").startswith("..20")


def test_an_update_replaces_one_link_and_removes_what_is_gone(tmp_path: Path) -> None:
    write_files(tmp_path, text(a="1", b="1", deep__c="1"))
    before = link(tmp_path / "..data")
    reader = (tmp_path / "a").open("rb")
    assert write_files(tmp_path, text(a="2", d="2"))
    assert seen(tmp_path) == {"a": b"2", "d": b"2"}
    assert reader.read() == b"1"  # an open file stays as it was
    reader.close()
    assert not (tmp_path / before).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [link(tmp_path / "..data"), "..data", "a", "d"]


def test_what_is_the_same_is_not_written_again(tmp_path: Path) -> None:
    write_files(tmp_path, text(a="1"))
    before = link(tmp_path / "..data")
    assert not write_files(tmp_path, text(a="1"))
    assert link(tmp_path / "..data") == before
    assert write_files(tmp_path, {"a": File(content=b"1", mode=0o400)})
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o400


def test_an_interrupted_update_is_repeated(tmp_path: Path) -> None:
    write_files(tmp_path, text(a="1"))
    (tmp_path / "..2020_01_01_00_00_00.000000000").mkdir()
    (tmp_path / "..data_tmp").symlink_to("..2020_01_01_00_00_00.000000000")
    (tmp_path / "a").unlink()
    write_files(tmp_path, text(a="1"))
    assert seen(tmp_path) == {"a": b"1"}
    assert len(list(tmp_path.iterdir())) == 3


def test_files_of_an_earlier_version_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "b").write_text("old")
    write_files(tmp_path, text(a="new", deep__b="new"))
    assert seen(tmp_path) == {"a": b"new", "deep/b": b"new"}


@pytest.mark.parametrize("target", ["{outside}", "../outside", "..", "."])
def test_a_data_link_that_leads_elsewhere_harms_nothing_there(tmp_path: Path, target: str) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("mine")
    volume.mkdir()
    (volume / "..data").symlink_to(target.format(outside=outside))
    write_files(volume, text(a="1"))
    assert seen(volume) == {"a": b"1"}
    assert (outside / "a").read_text() == "mine"
    write_files(volume, text(a="2"))
    assert (outside / "a").read_text() == "mine"


def test_a_link_in_place_of_a_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    outside.write_text("mine")
    write_files(volume, text(a="1"))
    (volume / "a").unlink()
    (volume / "a").symlink_to(outside)
    write_files(volume, text(a="1"))
    assert seen(volume) == {"a": b"1"}
    assert outside.read_text() == "mine"


def test_the_content_of_a_file_can_be_read(tmp_path: Path) -> None:
    write_files(tmp_path, text(deep__token="x"))
    assert read_file(tmp_path, "deep/token", limit=10) == b"x"
    assert read_file(tmp_path, "deep/token", limit=0) is None
    assert read_file(tmp_path, "absent", limit=10) is None


@pytest.mark.parametrize("kind", ["huge", "pipe", "device", "directory", "other"])
def test_whatever_a_program_puts_in_place_of_a_file_is_replaced(tmp_path: Path, kind: str) -> None:
    """Only at `plain` it can."""
    write_files(tmp_path, text(a="1"))
    path = tmp_path / "..data" / "a"
    path.unlink()
    if kind == "huge":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "directory":
        path.mkdir()
    else:
        path.write_text("2")
    assert read_file(tmp_path, "a", limit=0) is None
    assert write_files(tmp_path, text(a="1"))
    assert seen(tmp_path) == {"a": b"1"}


NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "e/f/g"])


@given(st.lists(st.dictionaries(NAMES, st.binary(max_size=8)), min_size=1, max_size=5))
def test_after_any_updates_the_volume_has_the_last_files(updates: list[dict[str, bytes]]) -> None:
    with TemporaryDirectory() as directory:
        volume = Path(directory) / "volume"
        for contents in updates:
            write_files(volume, {name: File(content=content, mode=0o644) for name, content in contents.items()})
        assert seen(volume) == updates[-1]
        assert sum(path.name.startswith("..20") for path in volume.iterdir()) == 1
