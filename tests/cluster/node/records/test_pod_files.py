"""Files of a pod are found where they are now: in layers, in volumes, on the host, in the view of a running process."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from trainwright.cluster.node.pod_processes import process_trees, running_containers
from trainwright.cluster.node.records.pod_files import find_pod_files


def write_pod(directory: Path, *, pid: int | None = None, cwd: str = "/work", **config: Any) -> Path:
    container = {"name": "main", "cwd": cwd, "mounts": config.pop("mounts", [])}
    directory.mkdir(exist_ok=True)
    (directory / "pod.json").write_text(json.dumps({"containers": [container], **config}))
    state: dict[str, Any] = {"running": {}} if pid else {}
    status = {"name": "main", "state": state, "process": pid}
    (directory / "state.json").write_text(json.dumps({"containers": [status], "initContainers": []}))
    return directory


def found(directory: Path, path: str) -> dict[str, str]:
    """Contents by the path as the program saw it."""
    return {file.path: file.source.read_text() for file in find_pod_files(directory, path)}


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    (tmp_path / "volume" / "deep").mkdir(parents=True)
    (tmp_path / "volume" / "model").write_text("m")
    (tmp_path / "volume" / "deep" / "log").write_text("l")
    return tmp_path / "volume"


def test_a_volume_is_found_by_its_mount_path(tmp_path: Path, volume: Path) -> None:
    mounts = [{"source": str(tmp_path), "target": "/data"}, {"source": str(volume), "target": "/data/models"}]
    pod = write_pod(tmp_path / "pod", mounts=mounts, cwd="/data/models")

    assert found(pod, "/data/models/model") == {"/data/models/model": "m"}
    assert found(pod, "deep/../model") == {"/data/models/model": "m"}
    assert found(pod, "/data/models") == {"/data/models/model": "m", "/data/models/deep/log": "l"}
    assert [file.relative for file in find_pod_files(pod, "/data/models")] == ["model", "deep/log"]
    assert found(pod, "/data/models/missing") == {}


def test_the_files_of_the_host_are_found_unless_they_were_hidden(tmp_path: Path, volume: Path) -> None:
    pod = write_pod(tmp_path / "pod", hidden=[str(volume / "deep")])
    assert found(pod, str(volume / "model")) == {str(volume / "model"): "m"}
    assert found(pod, str(volume / "deep" / "log")) == {}


def test_a_pod_did_not_see_the_private_directories_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwright.cluster.node.supervisor.sandbox.sandbox.PRIVATE_DIRECTORIES", (str(tmp_path),))
    model = tmp_path / "model"
    model.write_text("of the host")

    assert found(write_pod(tmp_path / "pod", sandbox="overlay"), str(model)) == {}
    assert found(write_pod(tmp_path / "pod", sandbox="plain"), str(model)) == {str(model): "of the host"}


def test_a_link_that_a_program_made_does_not_copy_files_of_the_machine(tmp_path: Path, volume: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("secret")
    (volume / "absolute").symlink_to(secret)
    (volume / "relative").symlink_to("../token")
    pod = write_pod(tmp_path / "pod", mounts=[{"source": str(volume), "target": "/data"}], hidden=[str(secret)])
    for name in ("absolute", "relative"):
        for file in find_pod_files(pod, f"/data/{name}"):
            with pytest.raises(OSError, match="leads out of"):
                file.copy_to(tmp_path / "copy")
        assert find_pod_files(pod, str(volume / name)) == [], "on the host's files"
    (model,) = find_pod_files(pod, "/data/model")
    (volume / "model").unlink()
    (volume / "model").symlink_to(secret)  # after it was found
    with pytest.raises(OSError, match="leads out of"):
        model.copy_to(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_shared_home_does_not_show_what_was_hidden_in_it(tmp_path: Path) -> None:
    home, data = tmp_path / "home", tmp_path / "home/data"
    data.mkdir(parents=True)
    (data / "token").write_text("secret")
    (home / "model").write_text("m")
    (home / "relative").symlink_to("data/token")
    (home / "absolute").symlink_to(data / "token")
    shared = {"source": str(home), "target": str(home)}
    pod = write_pod(tmp_path / "pod", mounts=[shared], hidden=[str(data)], cwd=str(home))
    for path in ("data/token", "relative", "absolute", "data"):
        assert find_pod_files(pod, path) == []
    assert found(pod, str(home)) == {f"{home}/model": "m"}
    (model,) = find_pod_files(pod, "model")
    (home / "model").unlink()
    (home / "model").symlink_to("data/token")  # after it was found
    with pytest.raises(OSError, match="which pods do not see"):
        model.copy_to(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_volume_in_a_hidden_directory_is_found(tmp_path: Path, volume: Path) -> None:
    pod = write_pod(tmp_path / "pod", mounts=[{"source": str(volume), "target": "/data"}], hidden=[str(tmp_path)])
    (model,) = find_pod_files(pod, "/data/model")
    model.copy_to(tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "m"


def test_a_path_that_may_not_be_read_has_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: str) -> str:
        raise PermissionError

    monkeypatch.setattr("os.path.realpath", refused)
    assert find_pod_files(write_pod(tmp_path / "pod"), "/proc/1/root/x") == []


def test_an_absolute_link_is_followed_as_the_program_saw_it(tmp_path: Path, volume: Path) -> None:
    (volume / "best").symlink_to("/data/deep/log")
    (volume / "loop").symlink_to("/data/loop")
    single = tmp_path / "single"
    single.write_text("file")
    mounts = [{"source": str(volume), "target": "/data"}, {"source": str(single), "target": "/etc/hosts"}]
    pod = write_pod(tmp_path / "pod", mounts=mounts)
    for path, content in (("/data/best", "l"), ("/etc/hosts", "file")):
        (found_file,) = find_pod_files(pod, path)
        found_file.copy_to(tmp_path / "copy")
        assert (tmp_path / "copy").read_text() == content
    assert find_pod_files(pod, "/data/loop") == []


def test_a_running_container_shows_its_own_view(tmp_path: Path, volume: Path) -> None:
    (tmp_path / "link").symlink_to(volume)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    pod = write_pod(tmp_path / "pod", pid=os.getpid(), cwd=str(tmp_path))

    assert found(pod, "link/model") == {f"{tmp_path}/link/model": "m"}
    assert found(pod, "link/../volume/deep/log") == {f"{tmp_path}/volume/deep/log": "l"}
    assert found(pod, "loop/x") == {}
    assert [container.pid for container in running_containers(pod)] == [os.getpid()]


def test_a_pod_without_files_has_none(tmp_path: Path) -> None:
    assert find_pod_files(tmp_path / "missing", "/x") == []
    assert running_containers(tmp_path / "missing") == []


def test_processes_are_listed_with_what_they_use() -> None:
    [this] = [one for one in process_trees([os.getpid()])[os.getpid()] if one.pid == os.getpid()]
    assert "\0".join(this.command) == Path("/proc/self/cmdline").read_text().strip("\0")
    assert this.cpu_seconds > 0
    assert this.memory > 2**20
    assert process_trees([2**22]) == {2**22: []}
