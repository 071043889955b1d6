"""A path below a volume never leads out of it, whatever the containers put there."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.linux.safe_paths import open_beneath


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("token")
    (tmp_path / "volume" / "a" / "b").mkdir(parents=True)
    (tmp_path / "volume" / "a" / "file").write_text("inside")
    return tmp_path / "volume"


def found(volume: Path, path: str, *, create: bool = False) -> str:
    descriptor = open_beneath(str(volume), path, create=create)
    try:
        return os.path.relpath(Path(f"/proc/self/fd/{descriptor}").readlink(), volume.resolve())
    finally:
        os.close(descriptor)


def test_paths_and_links_inside_are_followed(volume: Path) -> None:
    (volume / "link").symlink_to("a/b")
    (volume / "a" / "up").symlink_to("../a/file")
    assert found(volume, "a/b") == "a/b"
    assert found(volume, ".") == "."
    assert found(volume, "link") == "a/b"
    assert found(volume, "a/up") == "a/file"
    assert found(volume, "a/b/../file") == "a/file"


@pytest.mark.parametrize("target", ["/", "/etc", "..", "../secret", "a/../../secret", "a/b/../../.."])
@pytest.mark.parametrize("create", [False, True])
def test_links_that_lead_out_are_refused(volume: Path, target: str, create: bool) -> None:
    (volume / "link").symlink_to(target)
    for path in ("link", "a/../link", "link/secret"):
        with pytest.raises(OSError, match="leads out of"):
            found(volume, path, create=create)


def test_a_link_to_itself_ends(volume: Path) -> None:
    (volume / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="too many links"):
        found(volume, "loop")


def test_missing_directories_are_created_inside_with_the_mode_of_the_volume(volume: Path) -> None:
    volume.chmod(0o777)
    (volume / "dangling").symlink_to("new")
    assert found(volume, "x/y/z", create=True) == "x/y/z"
    assert (volume / "x" / "y").stat().st_mode & 0o777 == 0o777
    assert found(volume, "dangling", create=True) == "new"
    with pytest.raises(FileNotFoundError):
        found(volume, "absent")


def test_a_file_is_no_directory(volume: Path) -> None:
    with pytest.raises(NotADirectoryError):
        found(volume, "a/file/b", create=True)


def test_a_directory_that_is_replaced_by_a_link_again_and_again_leads_nowhere_else(volume: Path) -> None:
    """The race of CVE-2021-25741: the path is checked, then it is exchanged, then it is mounted."""
    stop = threading.Event()
    inside, outside, place = volume / "dir", volume / "out", volume / "place"
    inside.mkdir()
    outside.symlink_to("..")

    def exchange() -> None:
        while not stop.is_set():
            for source in (inside, outside):
                try:
                    source.rename(place)
                    place.rename(source)
                except OSError:
                    continue

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        seen = set()
        for _ in range(2000):
            try:
                seen.add(found(volume, "place"))
            except OSError:
                continue
    finally:
        stop.set()
        thread.join()
    assert seen <= {"place", "dir"}


NAMES = st.sampled_from(["a", "b", "link", "..", "."])


@given(st.lists(NAMES, min_size=1, max_size=6).map("/".join), st.lists(NAMES, min_size=1, max_size=4).map("/".join))
def test_what_is_found_is_always_inside(path: str, target: str) -> None:
    with TemporaryDirectory() as directory:
        volume = Path(directory) / "volume"
        (volume / "a" / "b").mkdir(parents=True)
        (volume / "link").symlink_to(target)
        before = sorted(_all(Path(directory)))
        try:
            inside = found(volume, path, create=True)
        except OSError:
            pass
        else:
            assert not inside.startswith("..")
        assert [one for one in sorted(_all(Path(directory))) if not one.startswith("volume")] == [
            one for one in before if not one.startswith("volume")
        ]


def _all(directory: Path) -> Iterator[str]:
    return (os.path.relpath(path, directory) for path in directory.rglob("*"))
