"""What is made on this machine for a pod before it starts."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cluster.runtime_configs import OVERLAY, pod, run
from trainwright.cluster.node.pods.pod_directory import PodDirectory
from trainwright.cluster.node.pods.pod_setup import find_installations, make_shared_memory, set_up_pod


def test_shared_memory_of_a_namespace_is_for_all_its_users_and_for_no_others(tmp_path: Path) -> None:
    ours = tmp_path / "trainwright-0-hash"
    for _ in range(2):
        make_shared_memory(ours / "team-a")
    assert stat.S_IMODE((ours / "team-a").stat().st_mode) == 0o1777
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700


def test_shared_memory_that_another_user_could_read_is_refused(tmp_path: Path) -> None:
    ours, elsewhere = tmp_path / "trainwright-0-hash", tmp_path / "elsewhere"
    ours.mkdir()
    ours.chmod(0o755)
    with pytest.raises(PermissionError, match="belongs to another user, or is open to others"):
        make_shared_memory(ours / "team-a")
    ours.rmdir()
    elsewhere.mkdir(mode=0o700)
    ours.symlink_to(elsewhere)
    with pytest.raises(PermissionError):
        make_shared_memory(ours / "team-a")
    if os.getuid() == 0:
        ours.unlink()
        ours.mkdir(mode=0o700)
        os.chown(ours, 65534, 65534)
        with pytest.raises(PermissionError):
            make_shared_memory(ours / "team-a")


def test_the_python_behind_a_virtual_environment_is_an_installation_too(tmp_path: Path) -> None:
    base, venv = tmp_path / "base/bin/python3", tmp_path / "venv/bin/python"
    for path in (base, venv):
        path.parent.mkdir(parents=True)
    base.touch()
    venv.symlink_to(base)
    assert find_installations(str(venv)) == (str(tmp_path / "venv"), str(tmp_path / "base"))
    assert find_installations(str(base)) == (str(tmp_path / "base"),)


def test_the_supervisor_learns_what_is_hidden_when_the_pod_starts(tmp_path: Path) -> None:
    config = replace(run(pod(), replace(OVERLAY, directory=str(tmp_path / "pod"))), python=None)
    hidden = ("/home/me/.kube", "/home/me/data")
    assert set_up_pod(PodDirectory(tmp_path / "pod"), config, lambda: hidden) == ()
    assert json.loads((tmp_path / "pod/pod.json").read_text())["hidden"] == list(hidden)
