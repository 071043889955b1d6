"""Which directories a command believes: nothing on the way to them can be changed by another user."""

import grp
import os
import pwd
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.cluster.datadir import DataDir, DataDirError
from trainwright.cluster.owned_paths import (
    UntrustedPathError,
    check_directory,
    is_open_to_others,
    open_private_directory,
)

ALICE, MALLORY = 41_234, 46_666
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to other users")

Plant = Callable[[Path], None]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.fixture(params=["root", "alice"])
def user(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Who runs the command; the files of the test belong to this user."""
    number = 0 if request.param == "root" else ALICE
    monkeypatch.setattr(os, "geteuid", lambda: number)
    return number


def given(path: Path, user: int, mode: int = 0o755) -> Path:
    path.mkdir(mode=mode)
    path.chmod(mode)
    os.chown(path, user, -1)
    return path


def refused(path: Path) -> str:
    with pytest.raises(DataDirError) as caught:
        DataDir(path).create()
    with pytest.raises(UntrustedPathError):
        check_directory(path)
    assert not (path / "format").exists()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@as_root
def test_a_directory_of_another_user_is_refused(tmp_path: Path, user: int) -> None:
    planted = given(tmp_path / "data", MALLORY)
    assert f"{planted} belongs to user {MALLORY}" in refused(planted)


@as_root
def test_a_directory_below_that_of_another_user_is_refused(tmp_path: Path, user: int) -> None:
    home = given(tmp_path / "home", MALLORY)
    given(home / "data", user)
    assert f"{home} belongs to user {MALLORY}" in refused(home / "data")
    assert f"{home} belongs to user {MALLORY}" in refused(home / "missing" / "data")


@as_root
def test_a_link_of_another_user_is_refused(tmp_path: Path, user: int) -> None:
    shared = given(tmp_path / "shared", 0, 0o1777)
    given(tmp_path / "own", user, 0o700)
    (shared / "data").symlink_to(tmp_path / "own")
    os.chown(shared / "data", MALLORY, -1, follow_symlinks=False)
    assert f"{shared / 'data'} belongs to user {MALLORY}" in refused(shared / "data")


@as_root
def test_the_target_of_a_link_is_checked_too(tmp_path: Path, user: int) -> None:
    planted = given(tmp_path / "planted", MALLORY)
    (tmp_path / "data").symlink_to("./planted")
    os.chown(tmp_path / "data", user, -1, follow_symlinks=False)
    assert f"{planted} belongs to user {MALLORY}" in refused(tmp_path / "data")


@as_root
def test_planted_files_are_refused(tmp_path: Path, user: int) -> None:
    for name in ("kubeconfig", "store.db", "token", "sa.key"):
        data = given(tmp_path / f"data-{name}", user, 0o700)
        (data / "format").write_text("1\n")
        (data / name).write_text("")
        os.chown(data / "format", user, -1)
        os.chown(data / name, MALLORY, -1)
        with pytest.raises(DataDirError, match=f"{name} belongs to user {MALLORY}"):
            DataDir(data).create()


@as_root
def test_root_does_not_use_the_home_of_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = given(tmp_path / "alice", ALICE, 0o700)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    with pytest.raises(DataDirError, match=rf"belongs to user {ALICE}.*run the command as user {ALICE}.*`sudo -H`"):
        DataDir.default().create()
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("opened", [0o777, 0o757])
def test_a_parent_that_others_can_write_is_refused(tmp_path: Path, opened: int) -> None:
    parent = tmp_path / "open"
    parent.mkdir()
    parent.chmod(opened)
    message = refused(parent / "data")
    assert f"{parent} has mode 0{opened:o}, so that other users can replace what is in it: `chmod go-w" in message


def test_a_sticky_parent_is_fine(tmp_path: Path) -> None:
    parent = tmp_path / "sticky"
    parent.mkdir()
    parent.chmod(0o1777)
    DataDir(parent / "a" / "data").create()
    assert [mode(path) for path in (parent / "a", parent / "a" / "data")] == [0o700, 0o700]


def test_a_data_directory_that_others_could_write_is_refused(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "data")
    data.create()
    data.path.chmod(0o777)
    link = DataDir(tmp_path / "link")
    link.path.symlink_to(data.path)
    for use in (data.create, data.check, link.check):
        with pytest.raises(DataDirError, match="has mode 0777"):
            use()


def test_an_empty_directory_is_made_private(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o777)
    DataDir(tmp_path / "data").create()
    assert mode(tmp_path / "data") == 0o700


@pytest.mark.parametrize("name", ["kubeconfig", "store.db", "token", "pki/ca.key"])
def test_links_in_place_of_files_are_refused(tmp_path: Path, name: str) -> None:
    data = DataDir(tmp_path / "data")
    data.create()
    data.pki.mkdir(mode=0o700)
    (data.path / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataDirError, match=f"{name} is a link"):
        data.create()


def test_a_volume_directory_may_be_on_another_disk(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "data")
    data.create()
    data.volumes.rmdir()
    (tmp_path / "disk").mkdir()
    data.volumes.symlink_to(tmp_path / "disk")
    data.create()
    assert data.volumes.is_symlink()


def test_files_of_earlier_versions_are_made_private(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "data")
    data.create()
    for path in (data.store, data.log):
        path.write_text("")
        path.chmod(0o644)
    data.create()
    assert [mode(path) for path in (data.store, data.log)] == [0o600, 0o600]


def test_the_way_to_a_directory_may_have_links_and_dots(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "a" / "b")
    descriptor = open_private_directory(tmp_path / "link" / ".." / "c")
    os.close(descriptor)
    assert (tmp_path / "a" / "c").is_dir()


def test_links_in_a_circle_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(DataDirError, match="cannot use data directory"):
        DataDir(tmp_path / "a").create()


@pytest.mark.parametrize(
    ("name", "members", "is_trusted"),
    [("alice", [], True), ("alice", ["alice"], True), ("alice", ["alice", "mallory"], False), ("staff", [], False)],
)
def test_a_group_of_the_user_alone_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, members: list[str], is_trusted: bool
) -> None:
    """Many systems give every user a group, and with it the umask 002."""
    group = tmp_path.stat().st_gid or 4_242
    user = pwd.struct_passwd(("alice", "x", os.geteuid(), group, "", "/", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: user)
    monkeypatch.setattr(grp, "getgrgid", lambda _: grp.struct_group((name, "x", group, members)))
    found = os.stat_result((stat.S_IFDIR | 0o775, 1, 1, 2, os.geteuid(), group, 0, 0, 0, 0))
    assert is_open_to_others(found) is not is_trusted
