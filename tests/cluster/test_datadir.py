import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from trainwright.cluster.datadir import (
    AlreadyRunningError,
    ClusterRecord,
    DataDir,
    DataDirError,
    RememberedPort,
    this_process,
)
from trainwright.cluster.process_identity import identify


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    made = DataDir(tmp_path / "data")
    made.create()
    return made


def record(**changes: object) -> ClusterRecord:
    me = this_process()
    made = ClusterRecord(
        pid=me.pid,
        start_ticks=me.start_ticks,
        boot_id=me.boot_id,
        server="https://127.0.0.1:26443",
        version="0.1.0",
        sandbox="overlay",
        python=sys.executable,
        kubeconfig="/home/me/.kube/config",
    )
    return msgspec.structs.replace(made, **changes)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_default_is_the_xdg_data_directory() -> None:
    assert DataDir.default({"XDG_DATA_HOME": "/data"}).path == Path("/data/trainwright")
    assert DataDir.default({}).path == Path.home() / ".local/share/trainwright"
    assert DataDir.default({"XDG_DATA_HOME": "relative"}).path == Path.home() / ".local/share/trainwright"


def test_only_the_owner_has_access(tmp_path: Path) -> None:
    open_to_all = tmp_path / "data"
    open_to_all.mkdir(mode=0o755)
    data = DataDir(open_to_all)
    data.create()
    data.token()
    data.write_record(record())
    assert mode(data.path) == 0o700
    assert {path.name: mode(path) for path in data.path.iterdir()} == {
        "format": 0o600,
        "token": 0o600,
        "credential.json": 0o600,
        "cluster.json": 0o600,
        "node": 0o700,
        "volumes": 0o700,
    }


def test_a_directory_of_a_newer_version_is_refused_untouched(data: DataDir) -> None:
    (data.path / "format").write_text("2\n")
    with pytest.raises(DataDirError, match=r"format says 2, this trainwright reads up to 1.*newer version.*--data-dir"):
        data.create()
    assert (data.path / "format").read_text() == "2\n"


def test_a_directory_with_other_files_is_left_unchanged(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    (home / "thesis.tex").write_text("")
    with pytest.raises(DataDirError, match=r"home is not empty and not a data directory .*thesis\.tex.*--data-dir"):
        DataDir(home).create()
    assert [path.name for path in home.iterdir()] == ["thesis.tex"]
    assert mode(home) == 0o755


def test_images_may_come_before_the_first_start(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "data")
    (data.path / "images" / "blobs").mkdir(parents=True)

    data.create()

    assert (data.path / "images" / "blobs").is_dir()


def test_a_killed_first_start_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / ".format.abc").write_text("")
    DataDir(tmp_path).create()
    assert (tmp_path / "format").read_text() == "1\n"


def test_unfinished_files_of_a_killed_process_are_removed(data: DataDir) -> None:
    (data.path / ".cluster.json.k3l9x_2a").write_text("half")
    data.lock().release()
    assert not list(data.path.glob(".*"))


def test_a_directory_that_trainwright_did_not_write_is_refused(data: DataDir) -> None:
    (data.path / "format").write_text("ext4\n")
    with pytest.raises(DataDirError, match=r"says 'ext4', not a number: .*--data-dir"):
        data.create()


def test_a_file_in_its_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(DataDirError, match=r"data is not a directory: .*--data-dir"):
        DataDir(tmp_path / "data").create()


def test_a_path_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataDirError, match=r"cannot use data directory .*file/data: Not a directory; .*--data-dir"):
        DataDir(tmp_path / "file" / "data").create()


def test_the_error_of_a_second_owner_names_the_first(data: DataDir) -> None:
    lock = data.lock()
    with pytest.raises(AlreadyRunningError) as refusal:
        data.lock()
    assert str(refusal.value) == (
        f"already running (pid {os.getpid()}), data directory {data.path}; "
        "`trainwright status` shows it, another cluster needs --cluster NAME"
    )
    lock.release()
    lock.release()  # a second time is harmless
    data.lock().release()


def test_a_killed_owner_does_not_keep_the_lock(data: DataDir) -> None:
    program = (
        "import sys; from pathlib import Path; from trainwright.cluster.datadir import DataDir\n"
        "lock = DataDir(Path(sys.argv[1])).lock(); print('locked', flush=True); input()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(data.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "locked\n"
    with pytest.raises(AlreadyRunningError, match=f"pid {child.pid}"):
        data.lock()
    child.kill()
    child.communicate()
    data.lock().release()


def test_the_record_is_valid_only_while_its_process_runs(data: DataDir) -> None:
    assert data.running() is None
    data.write_record(record())
    assert data.running() == record()

    data.write_record(record(start_ticks=record().start_ticks + 1))  # the pid belongs to another process by now
    assert data.running() is None
    data.write_record(record(boot_id="the boot before"))
    assert data.running() is None

    data.write_record(record())
    data.remove_record(record(server="https://127.0.0.1:1"))  # the record of another process stays
    assert data.running() == record()
    data.remove_record(record())
    assert data.running() is None
    data.remove_record(record())  # not there any more: fine


def test_the_process_with_the_lock_owns_the_directory_ready_or_not(data: DataDir) -> None:
    assert data.owner() is None
    lock = data.lock()
    assert data.owner() == identify(os.getpid())
    lock.release()
    assert data.owner() is None


def test_a_lock_is_lost_with_its_file(data: DataDir) -> None:
    lock = data.lock()
    assert not lock.is_removed
    (data.path / "lock").unlink()
    assert lock.is_removed
    later = data.lock()  # of a cluster that began afresh in the same place
    assert lock.is_removed
    assert not later.is_removed
    later.release()
    lock.release()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "one"}', "\udcff"])
def test_a_broken_record_is_ignored(data: DataDir, text: str) -> None:
    (data.path / "cluster.json").write_bytes(text.encode(errors="surrogateescape"))
    assert data.running() is None


def test_token_and_port_are_kept(data: DataDir) -> None:
    token = data.token()
    assert len(token) >= 40
    assert data.token() == token
    assert data.remembered_port() is None
    for port in (RememberedPort(26443, requested=False), RememberedPort(7000, requested=True)):
        data.remember_port(port)
        assert data.remembered_port() == port


@pytest.mark.parametrize("text", ["", "port", "0", "70000", "-1"])
def test_a_broken_port_or_token_file_is_replaced(data: DataDir, text: str) -> None:
    (data.path / "port").write_text(text)
    (data.path / "token").write_text(text)
    assert data.remembered_port() is None
    assert len(data.token()) >= 40
