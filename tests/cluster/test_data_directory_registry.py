"""Every cluster knows the data directories of the others, to hide them from its pods."""

import os
import pwd
from pathlib import Path

import pytest

from trainwright.cluster.data_directory_registry import all_data_directories, register, unregister
from trainwright.cluster.datadir import DataDir
from trainwright.cluster.facade import delete_data


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """That of the variable and of the user database."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("pwd.getpwuid", lambda user: pwd.struct_passwd(("me", "x", user, 0, "", str(tmp_path), "")))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    return tmp_path


def created(path: Path) -> DataDir:
    data = DataDir(path)
    data.create()
    return data


def test_a_cluster_with_a_directory_of_its_own_is_found_by_others(home: Path) -> None:
    data = created(home / "projects/cluster")
    register(data)
    register(data)
    assert all_data_directories().count(data.path) == 1
    assert home / ".local/share/trainwright.clusters" in all_data_directories(), "the notes are hidden too"
    unregister(data)
    assert data.path not in all_data_directories()


def test_named_clusters_are_found_without_a_note(home: Path) -> None:
    default, named = created(DataDir.default().path), created(DataDir.of_cluster("dev").path)
    assert {default.path, named.path} <= set(all_data_directories())


def test_clusters_elsewhere_by_their_variables_are_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    default = created(DataDir.default().path)
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "elsewhere"))
    other = created(DataDir.default().path)
    register(other)
    assert {default.path, other.path} <= set(all_data_directories())
    monkeypatch.delenv("XDG_DATA_HOME")
    assert {default.path, other.path} <= set(all_data_directories())


def test_clusters_with_another_home_are_found_by_that_of_the_user_database(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(home / "first"))
    (home / "first").mkdir()
    data = created(home / "anywhere/data")
    register(data)
    monkeypatch.setenv("HOME", str(home / "second"))
    assert data.path in all_data_directories()


def test_what_pods_could_plant_is_there_before_them(home: Path) -> None:
    register(created(home / "cluster"))
    for name in (".kube", ".local/share/trainwright", ".local/share/trainwright.clusters"):
        assert (home / name).is_dir()
        assert home / name in all_data_directories()


def test_what_the_owner_removed_is_made_again_before_the_next_pod(home: Path) -> None:
    register(created(home / "cluster"))
    (home / ".kube").rmdir()
    assert home / ".kube" in all_data_directories()
    assert (home / ".kube").is_dir()


def test_the_default_directory_stays_when_its_cluster_is_deleted(home: Path) -> None:
    """Pods of other clusters have a cover over it, which would go with the directory."""
    default, other = created(DataDir.default().path), created(home / "cluster")
    delete_data(default)
    delete_data(other)
    assert list(default.path.iterdir()) == []
    assert not other.path.exists()


def test_no_place_for_a_note_is_no_error(home: Path) -> None:
    (home / ".local").write_text("a file")
    register(created(home / "cluster"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to others")
def test_notes_of_another_user_are_not_believed(home: Path) -> None:
    data = created(home / "cluster")
    register(data)
    os.chown(home / ".local/share/trainwright.clusters", 46_666, -1)
    assert data.path not in all_data_directories()


def test_a_directory_that_is_gone_or_is_none_of_a_cluster_is_left_out(home: Path) -> None:
    data, other = created(home / "a"), created(home / "b")
    register(data)
    register(other)
    (data.path / "format").unlink()
    assert data.path not in all_data_directories(), "an attacker's note must not hide any directory"
    for path in sorted(data.path.rglob("*"), reverse=True):
        path.rmdir()
    data.path.rmdir()
    register(other)
    notes = home / ".local/share/trainwright.clusters"
    assert [note.read_text() for note in notes.iterdir()] == [str(other.path)]
    assert {note.stat().st_mode & 0o777 for note in notes.iterdir()} == {0o600}


@pytest.mark.skipif(os.getuid() != 0, reason="only root reads the homes of others")
def test_another_user_cannot_make_every_pod_mount_thousands_of_directories(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob, user = home / "home/bob", 46_666
    for number in range(200):
        (bob / f".local/share/trainwright-{number}").mkdir(parents=True)
    monkeypatch.setattr("trainwright.cluster.data_directory_registry._other_homes", lambda: ((bob, user),))
    assert 0 < len([path for path in all_data_directories() if bob in path.parents]) <= 64


@pytest.mark.skipif(os.getuid() != 0, reason="only root reads the homes of others")
def test_root_hides_the_clusters_of_other_users(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = home / "home/alice"
    (alice / ".local/share/trainwright-dev").mkdir(parents=True)
    (alice / ".kube").mkdir()
    data = created(home / "srv/data")
    register(data)
    user, notes = 46_666, alice / ".local/share/trainwright.clusters"
    (home / ".local/share/trainwright.clusters").rename(notes)
    for path in (notes, data.path):
        os.chown(path, user, -1)
    monkeypatch.setattr("trainwright.cluster.data_directory_registry._other_homes", lambda: ((alice, user),))
    assert {alice / ".kube", alice / ".local/share/trainwright-dev", data.path} <= set(all_data_directories())
    os.chown(data.path, 0, -1)
    os.utime(notes)
    assert data.path not in all_data_directories(), "a note of alice must not hide what belongs to others"
