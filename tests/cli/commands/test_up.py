"""What `up` decides and prints around the cluster itself: kubeconfig, compared settings, messages."""

import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from trainwright.cli.commands.up import banner, command, differences, nfs_mapping, stopped_message
from trainwright.cli.contexts import user_kubeconfig
from trainwright.cli.main import cli
from trainwright.cli.up.up_flags import UpFlags
from trainwright.cluster.datadir import ClusterRecord, DataDir
from trainwright.cluster.node_settings import NodeSettings

RECORD = ClusterRecord(
    pid=1,
    start_ticks=1,
    boot_id="boot",
    server="https://127.0.0.1:26443",
    version="0.1.0",
    sandbox="overlay",
    python="/env/bin/python",
    kubeconfig="/home/me/.kube/config",
    nfs_mappings={"nas:/y": "/srv"},
)


def test_without_flags_there_are_no_differences() -> None:
    assert differences(RECORD, UpFlags()) == []


def test_the_same_settings_are_no_differences() -> None:
    node = {"sandbox": "overlay", "python": "/env/bin/python"}
    given = UpFlags(port=26443, kubeconfig=Path("/home/me/.kube/config"), node=node)
    assert differences(RECORD, given) == []


@pytest.mark.parametrize(
    ("given", "difference"),
    [
        (UpFlags(port=1234), "--port 26443, not 1234"),
        (UpFlags(node={"sandbox": "plain"}), "--sandbox overlay, not plain"),
        (UpFlags(node={"nfs_mappings": {"nas:/x": "/srv"}}), "--map-nfs nas:/y=/srv, not nas:/x=/srv"),
        (UpFlags(node={"python": "/usr/bin/python3"}), "--python /env/bin/python, not /usr/bin/python3"),
        (UpFlags(node={"registries": ("b:5000", "a")}), "--registry none, not a,b:5000"),
        (UpFlags(kubeconfig=Path("/tmp/config")), "--kubeconfig /home/me/.kube/config, not /tmp/config"),
    ],
)
def test_other_settings_are_named(given: UpFlags, difference: str) -> None:
    assert differences(RECORD, given) == [difference]


def test_every_setting_of_the_node_has_a_flag_of_its_name() -> None:
    flags = {option.name for option in command.params}
    assert set(NodeSettings.__struct_fields__) - flags == {"python_origin"}, "which follows from the python"


def test_an_nfs_mapping_names_an_export_and_an_existing_directory(tmp_path: Path) -> None:
    assert nfs_mapping(f"nas:/exports/={tmp_path}") == ("nas:/exports", str(tmp_path))
    for text in ("nas", "nas:/exports", "nas:exports=/tmp", f":/x={tmp_path}", "nas:/exports=/no/such/directory"):
        with pytest.raises(click.BadParameter):
            nfs_mapping(text)


def test_the_context_is_added_to_the_file_that_kubectl_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert user_kubeconfig(None, {}) == Path("/home/me/.kube/config")
    assert user_kubeconfig(None, {"KUBECONFIG": ":/first:/second"}) == Path("/first")
    assert user_kubeconfig(Path("/given"), {"KUBECONFIG": "/first"}) == Path("/given")


def test_the_banner_shows_the_settings_and_the_next_commands() -> None:
    text = "\n".join(banner(RECORD, DataDir(Path("/data")), detached=True))
    for part in ("https://127.0.0.1:26443", "overlay", "/env/bin/python", "/data", "/home/me/.kube/config"):
        assert part in text
    assert "trainwright run --data-dir /data train.py, or job.yaml" in text
    assert "List:  trainwright ps" in text
    assert "trainwright down --data-dir /data" in text


def test_the_default_directory_needs_no_flag() -> None:
    text = "\n".join(banner(RECORD, DataDir.default(), detached=False))
    assert "--data-dir" not in text
    assert "Ctrl-C; pods keep running" in text


@pytest.mark.parametrize(
    ("pods", "words"), [(0, "no pods are running"), (1, "1 pod keeps running"), (3, "3 pods keep running")]
)
def test_the_stopped_message_counts_pods_that_keep_running(pods: int, words: str) -> None:
    assert words in stopped_message(pods)


def test_on_other_systems_than_linux_the_error_names_what_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    result = CliRunner().invoke(cli, ["up"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: the embedded cluster needs Linux, this is darwin")
    assert "--context" in result.output
    assert result.output.count("\n") == 1
