"""NFS volumes: which directory replaces an export, what is mounted, and what the user is told otherwise."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.supervised_pods import container
from trainwright.cluster.node.supervisor.pod_json import NfsVolumeJson
from trainwright.cluster.node.supervisor.pod_process import mount_nfs_volumes
from trainwright.cluster.node.volumes.files import UnsupportedVolumeError
from trainwright.cluster.node.volumes.sources import (
    NfsMount,
    NfsSupport,
    Volume,
    VolumeContext,
    mapped_directory,
    nfs_mount,
    plan_volumes,
)
from trainwright.objects import Object

MAPPINGS = {"nas:/exports": "/mnt/all", "nas:/exports/data": "/mnt/data", "other:/": "/mnt/other"}


@pytest.mark.parametrize(
    ("server", "path", "directory"),
    [
        ("nas", "/exports", "/mnt/all"),
        ("nas", "/exports/", "/mnt/all"),
        ("nas", "//exports/data", "/mnt/data"),
        ("nas", "//", None),
        ("nas", "/exports/models/v1", "/mnt/all/models/v1"),
        ("nas", "/exports/data/mnist", "/mnt/data/mnist"),
        ("nas", "/exports2", None),
        ("nas", "/", None),
        ("nas", "/exports/../etc", None),
        ("other", "/anything", "/mnt/other/anything"),
        ("unknown", "/exports", None),
    ],
)
def test_the_longest_mapped_path_counts(server: str, path: str, directory: str | None) -> None:
    assert mapped_directory(server, path, MAPPINGS) == directory


def plan(spec: Object, support: NfsSupport) -> Volume:
    pod = {"metadata": {"name": "p", "namespace": "d"}, "spec": {"volumes": [{"name": "v", "nfs": spec}]}}
    return plan_volumes(VolumeContext(pod=pod, nfs=support), directory="/volumes")["v"]


def test_a_mapped_export_is_a_directory_of_this_machine() -> None:
    found = plan({"server": "nas", "path": "/exports/data", "readOnly": True}, NfsSupport(mappings=MAPPINGS))
    assert (found.path, found.host_path_type, found.read_only, found.nfs) == ("/mnt/data", "Directory", True, None)


def test_root_mounts_an_export_that_is_not_mapped() -> None:
    found = plan({"server": "nas", "path": "/scratch"}, NfsSupport(mappings=MAPPINGS, program="/sbin/mount.nfs"))
    assert (found.path, found.nfs) == ("/volumes/v", NfsMount(source="nas:/scratch", options="retry=0"))
    mount = nfs_mount("nas", "/", ["vers=4.1", "retry=1"], NfsSupport(program="/sbin/mount.nfs"))
    assert mount.options == "vers=4.1,retry=1"


def test_otherwise_the_user_is_told_what_to_do() -> None:
    with pytest.raises(UnsupportedVolumeError) as refused:
        plan({"server": "nas", "path": "/scratch"}, NfsSupport(reason="mount.nfs is not installed"))
    assert str(refused.value) == (
        'volume "v": this node cannot mount nas:/scratch: mount.nfs is not installed. Have it mounted on this machine, '
        "and start the cluster with `trainwright up --map-nfs nas:/scratch=DIRECTORY`"
    )


@pytest.mark.parametrize("server", ["-osuid", "--help", "", "a b", "nas,dev", "x" * 300])
def test_a_server_is_no_option_of_the_program(server: str) -> None:
    with pytest.raises(UnsupportedVolumeError, match="is neither a name nor an address"):
        nfs_mount(server, "/exports", [], NfsSupport(program="/sbin/mount.nfs"))


@pytest.mark.parametrize("server", ["nas", "nas-1.example.com", "10.0.0.1", "[fd00::1]", "fe80::1%eth0"])
def test_names_and_addresses_are_servers(server: str) -> None:
    assert nfs_mount(server, "/e", [], NfsSupport(program="/sbin/mount.nfs")).source == f"{server}:/e"


def fake_mount(directory: Path, script: str) -> str:
    """A program in place of mount.nfs."""
    program = directory / "mount.nfs"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_a_mount_that_fails_is_reported_in_the_words_of_the_kubelet(tmp_path: Path) -> None:
    program = fake_mount(tmp_path, "echo mount.nfs: Connection refused >&2; exit 32")
    volume: NfsVolumeJson = {"name": "v", "source": "nas:/x", "path": "/nowhere", "options": "retry=0"}
    assert mount_nfs_volumes(program, [volume]) == (
        'MountVolume.SetUp failed for volume "v" : mount failed: exit status 32 Mounting command: mount.nfs Mounting '
        "arguments: nas:/x /nowhere -o retry=0 Output: mount.nfs: Connection refused"
    )


def test_an_export_is_mounted_in_the_pod_alone(overlay: Any, tmp_path: Path) -> None:
    if overlay.user.prefix or os.getuid() != 0:
        pytest.skip("only root mounts")
    export, place = overlay.shared / "export", overlay.node / "place"
    for path in (export, place):
        path.mkdir()
    (export / "data").write_text("from the server")
    volume = {"name": "v", "source": "nas:/x", "path": str(place), "options": "retry=0"}
    mount = {"name": "v", "source": str(place), "volume": str(place), "target": "/v", "readOnly": False}
    program = fake_mount(tmp_path, f'exec mount --bind {export} "$2"')
    main = container("cat /v/data; echo x > /v/written", mounts=[mount])
    with overlay.run(main, nfsProgram=program, nfsVolumes=[volume]) as pod:
        pod.wait()
    assert pod.output() == ["from the server"]
    assert (export / "written").exists()
    assert not list(place.iterdir())


def test_a_pod_whose_export_cannot_be_mounted_has_not_started(overlay: Any, tmp_path: Path) -> None:
    """Its agent finds no supervisor.json, records the last line of the log, and tries again."""
    program = fake_mount(overlay.shared, "exit 32")
    volume = {"name": "v", "source": "nas:/x", "path": str(tmp_path), "options": "retry=0"}
    with overlay.run(container("true"), nfsProgram=program, nfsVolumes=[volume]) as pod:
        output, _ = pod.process.communicate(timeout=15)
    assert output.startswith('MountVolume.SetUp failed for volume "v" : mount failed: exit status 32')
    assert not (pod.directory / "supervisor.json").exists()
