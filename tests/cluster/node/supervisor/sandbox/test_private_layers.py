"""What a program wrote neither to a volume nor to the host is found when its container has ended."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.support.cluster.supervised_pods import LAYERED_DIRECTORY, container
from trainwright.cluster.node.records.pod_files import PrivateFile, read_private_files
from trainwright.cluster.node.supervisor.sandbox import private_layers
from trainwright.cluster.node.supervisor.sandbox.private_layers import find_private_files


def found(pod: Any) -> dict[str, tuple[int, str]]:
    """Path as the program saw it -> size and content."""
    return {file.path: (file.size, file.source.read_text()) for file in read_private_files(pod.directory)}


@pytest.mark.parametrize("path", ["/tmp/run 1/m.pt", "/var/tmp/m.pt", "/etc/deep/er/m.pt", "/m.pt", "/new/m.pt"])
def test_a_private_file_is_found_with_path_size_and_content(overlay: Any, path: str) -> None:
    script = f"mkdir -p '{Path(path).parent}'; echo weights > '{path}'"
    with overlay.run(container(script)) as pod:
        pod.wait()
    assert found(pod) == {path: (8, "weights\n")}


@pytest.fixture
def layered(overlay: Any) -> Iterator[Path]:
    """A directory of the user's that pods see below a private layer."""
    with TemporaryDirectory(prefix="trainwright-", dir=LAYERED_DIRECTORY) as directory:
        overlay.user.own(Path(directory))
        yield Path(directory)


def test_files_in_the_directory_that_contains_the_data_directory_are_found(overlay: Any, layered: Path) -> None:
    """The kernel refuses a layer on the disk there, so it is in memory until the container ends."""
    runner = replace(overlay, node=layered / "node")
    with runner.run(container(f"echo weights > {layered}/model.pt")) as pod:
        pod.wait()
        assert found(pod) == {f"{layered}/model.pt": (8, "weights\n")}
    assert not (layered / "model.pt").exists()


def test_a_changed_file_of_the_host_is_found_and_one_that_was_only_opened_is_not(overlay: Any, layered: Path) -> None:
    for name in ("changed", "opened"):
        (layered / name).write_text("old\n")
        overlay.user.own(layered / name)
    with overlay.run(container(f"cd {layered}; echo new >> changed; : >> opened; cat opened")) as pod:
        pod.wait()
    assert pod.output() == ["old"]
    assert found(pod) == {f"{layered}/changed": (8, "old\nnew\n")}


def test_noise_is_not_found_and_takes_no_space(overlay: Any) -> None:
    noise = ["/tmp/pymp-x1/a", "/tmp/torchelastic_a/b", "/tmp/p/__pycache__/m.pyc"]
    script = "".join(f"mkdir -p $(dirname {path}); echo x > {path}; " for path in noise)
    others = "mkfifo /tmp/pipe; : > /tmp/empty; ln -s / /tmp/link; mkdir /tmp/directory"
    with overlay.run(container(f"{script}{others}; echo x > /tmp/p/kept")) as pod:
        pod.wait()
    assert list(found(pod)) == ["/tmp/p/kept"]
    assert [path.name for path in (pod.directory / "scratch").rglob("*") if path.is_file()] == ["kept"]


def test_files_of_the_system_are_noise(tmp_path: Path) -> None:
    upper = tmp_path / "layers/1/upper"
    for name in ("log/messages", "tmp/model.pt", "lib/model.pt"):
        (upper / name).parent.mkdir(parents=True)
        (upper / name).write_text("x")
    (tmp_path / "layers/1/path").symlink_to("/var")
    assert [path for path, _, _ in find_private_files(str(tmp_path))] == ["/var/tmp/model.pt"]


def test_the_file_of_the_last_run_counts_and_few_runs_are_kept(overlay: Any) -> None:
    script = "n=$(ls /v | wc -l); touch /v/$n; echo $n > /tmp/model.pt; echo $n > /tmp/run-$n; test $n = 3"
    mounts = [{"source": str(overlay.shared), "target": "/v", "readOnly": False}]
    with overlay.run(container(script, mounts=mounts), restartPolicy="OnFailure") as pod:
        pod.wait()
    assert {path: content for path, (_, content) in found(pod).items()} == {
        "/tmp/model.pt": "3\n",
        "/tmp/run-1": "1\n",
        "/tmp/run-2": "2\n",
        "/tmp/run-3": "3\n",
    }


def test_files_of_containers_and_init_containers_are_told_apart(overlay: Any) -> None:
    script = "echo x > /tmp/model.pt"
    with overlay.run(container(script), initContainers=[container(script, name="first-one")]) as pod:
        pod.wait()
    assert [(file.container, file.path) for file in read_private_files(pod.directory)] == [
        ("first-one", "/tmp/model.pt"),
        ("main", "/tmp/model.pt"),
    ]


def test_files_in_an_empty_dir_name_their_volume(overlay: Any) -> None:
    directory = overlay.node / "pods/uid"
    volume = {"source": f"{directory}/volumes/out", "target": "/out", "readOnly": False}
    with overlay.run(container("echo weights > /out/model.pt", mounts=[volume])) as pod:
        pod.wait()
    assert read_private_files(pod.directory) == (
        PrivateFile(
            container="main", path="/out/model.pt", size=8, source=directory / "volumes/out/model.pt", volume="out"
        ),
    )


def test_the_files_of_a_removed_pod_are_found_at_its_old_directory(overlay: Any) -> None:
    with overlay.run(container("echo weights > /tmp/model.pt")) as pod:
        pod.wait()
    (overlay.node / "removed").mkdir()
    pod.directory.rename(overlay.node / "removed/uid")
    assert found(pod) == {"/tmp/model.pt": (8, "weights\n")}


def test_a_running_pod_shows_what_it_has_written_so_far(overlay: Any) -> None:
    with overlay.run(container("echo weights > /tmp/model.pt; exec sleep 60")) as pod:
        pod.until(lambda pod: "/tmp/model.pt" in found(pod))


def test_a_pod_that_was_killed_keeps_its_files(overlay: Any) -> None:
    with overlay.run(container("echo weights > /tmp/model.pt; echo written; exec sleep 60")) as pod:
        pod.until(lambda pod: pod.output() == ["written"])
        pod.kill()
        pod.process.wait()
    assert found(pod) == {"/tmp/model.pt": (8, "weights\n")}


def test_at_plain_every_file_is_the_hosts(plain: Any) -> None:
    with plain.run(container("echo weights > model.pt", cwd=str(plain.shared))) as pod:
        pod.wait()
    assert read_private_files(pod.directory) == ()
    assert (plain.shared / "model.pt").exists()


def test_the_walk_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_layers, "MAX_ENTRIES", 10)
    upper = tmp_path / "layers/1/upper"
    for number in range(20):
        (upper / str(number)).mkdir(parents=True)
        (upper / str(number) / "file").write_text("x")
    (tmp_path / "layers/1/path").symlink_to("/tmp")
    assert 0 < len(list(find_private_files(str(tmp_path)))) < 10
