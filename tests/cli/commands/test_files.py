"""Where the files of a training program go on the embedded cluster, with real programs."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.embedded_cluster import UpCommand
from tests.support.commands.trainwright import Result, trainwright
from tests.support.objects.shell_jobs import shell_job, write_manifest
from trainwright.api.kinds import PYTORCH
from trainwright.cluster.facade import PodRecord, pod_records
from trainwright.kube.client.sync_client import SyncClient


def run(up: UpCommand, directory: Path, name: str, script: str, **spec: Any) -> Result:
    """Runs a job whose manifest is in the directory; it must succeed."""
    manifest = write_manifest(directory, shell_job(name, script, **spec))
    answer = trainwright("run", "--data-dir", str(up.data.path), manifest, environment=up.environment)
    assert answer.code == 0, answer.all
    return answer


def records(up: UpCommand, job: str) -> list[PodRecord]:
    with SyncClient(up.config) as client:
        found = client.get(PYTORCH.resource, job, namespace="default")
    return pod_records(up.data, found["metadata"]["uid"])


def overlay_only(up: UpCommand) -> None:
    if up.record.sandbox != "overlay":
        pytest.skip(f"this machine has sandbox {up.record.sandbox}, where all files are the host's")


def test_a_checkpoint_in_the_home_or_beside_the_manifest_is_kept(embedded: UpCommand, tmp_path: Path) -> None:
    home = Path(embedded.environment["HOME"])
    program = tmp_path / "train.py"
    program.write_text(
        "from pathlib import Path\n"
        "for directory in (Path.home() / 'checkpoints', Path('out'), Path.home() / '.cache/hub'):\n"
        "    directory.mkdir(parents=True)\n"
        "    (directory / 'model.pt').write_text('weights')\n"
    )
    run(embedded, tmp_path, "saves", "python3 train.py")
    for directory in (home / "checkpoints", tmp_path / "out", home / ".cache/hub"):
        assert (directory / "model.pt").read_text() == "weights"
        assert (directory / "model.pt").stat().st_uid == os.getuid()
    assert records(embedded, "saves")[0].private_files == ()


def test_a_program_sees_neither_the_data_directory_nor_kubeconfigs(embedded: UpCommand, tmp_path: Path) -> None:
    overlay_only(embedded)
    home = Path(embedded.environment["HOME"])
    (home / ".kube").mkdir(exist_ok=True)
    (home / ".kube/config").write_text("token")
    (tmp_path / "link").symlink_to(embedded.data.path)
    looks = f"ls -A ~/.kube {embedded.data.path} link/ ~/../{home.name}/.kube > seen; cat seen"
    run(embedded, tmp_path, "curious", looks)
    seen = [line for line in (tmp_path / "seen").read_text().splitlines() if line and not line.endswith(":")]
    assert seen == []


def test_a_checkpoint_elsewhere_is_private_and_recorded(embedded: UpCommand, tmp_path: Path) -> None:
    overlay_only(embedded)
    run(embedded, tmp_path, "elsewhere", "echo weights > /tmp/model.pt; mkdir -p ckpt && echo weights > ckpt/1")
    (record,) = records(embedded, "elsewhere")
    (file,) = record.private_files
    assert (file.container, file.path, file.size) == ("pytorch", "/tmp/model.pt", 8)
    assert file.source.read_text() == "weights\n"
    assert not Path("/tmp/model.pt").exists()
    assert (tmp_path / "ckpt/1").exists()


def test_private_files_outlive_the_clean_up_of_pods_until_the_job_is_deleted(
    embedded: UpCommand, tmp_path: Path
) -> None:
    overlay_only(embedded)
    answer = run(embedded, tmp_path, "cleaned", "echo weights > /tmp/model.pt", runPolicy={"cleanPodPolicy": "All"})
    assert "cleaned-master-0  /tmp/model.pt  8 B" in answer.out
    (record,) = records(embedded, "cleaned")
    _wait_until(lambda: records(embedded, "cleaned")[0].removed)
    (file,) = record.private_files
    assert file.source.read_text() == "weights\n"
    deleted = trainwright(
        "delete", "cleaned", "--yes", "--data-dir", str(embedded.data.path), environment=embedded.environment
    )
    assert deleted.code == 0, deleted.all
    _wait_until(lambda: not file.source.exists())


def _wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)
