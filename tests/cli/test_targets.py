"""Which cluster a command uses: the embedded one unless another is selected, and an error if it is not running."""

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from trainwright.cli.errors import CommandError
from trainwright.cli.flags import TargetOptions, data_dir_flag
from trainwright.cli.targets import data_dir_at, find_target
from trainwright.cluster.datadir import ClusterRecord, DataDir, this_process
from trainwright.kube.client.kubeconfig import merge_into_kubeconfig

SERVER = "https://127.0.0.1:26443"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("XDG_DATA_HOME", "KUBECONFIG", "TRAINWRIGHT_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def running_cluster(data: DataDir, server: str = SERVER) -> None:
    data.create()
    merge_into_kubeconfig(data.kubeconfig, name="trainwright", server=server, ca_data=b"", token="secret")
    me = this_process()
    data.write_record(
        ClusterRecord(
            pid=me.pid,
            start_ticks=me.start_ticks,
            boot_id=me.boot_id,
            server=server,
            version="0.1.0",
            sandbox="overlay",
            python="/usr/bin/python3",
            kubeconfig="",
        )
    )


def kubeconfig(path: Path, name: str, server: str) -> Path:
    merge_into_kubeconfig(path, name=name, server=server, ca_data=b"", token="secret")
    return path


def test_the_embedded_cluster_is_the_default() -> None:
    running_cluster(DataDir.default())
    target = find_target(TargetOptions(), {})
    assert target.embedded
    assert target.line == f"→ embedded cluster at {SERVER} (namespace default)"


def test_a_name_selects_another_embedded_cluster() -> None:
    data = DataDir.of_cluster("dev")
    running_cluster(data, "https://127.0.0.1:1234")
    by_flag = CliRunner().invoke(_show_data_dir, ["--cluster", "dev"])
    assert by_flag.output == f"{data.path}\n"
    target = find_target(TargetOptions(data_dir=data.path), {})
    assert target.flags == " --cluster dev"
    by_context = find_target(TargetOptions(kubeconfig=data.kubeconfig, context="trainwright"), {})
    assert by_context.embedded


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--cluster", "Dev"], "write small letters"), (["--cluster", "a", "--data-dir", "b"], "cannot be combined")],
)
def test_a_name_that_cannot_be_used_is_refused(words: list[str], message: str) -> None:
    result = CliRunner().invoke(_show_data_dir, words)
    assert result.exit_code == 2
    assert message in result.output


@click.command
@data_dir_flag
def _show_data_dir(data_dir: Path | None) -> None:
    click.echo(data_dir)


def test_a_data_directory_selects_another_embedded_cluster(tmp_path: Path) -> None:
    data = data_dir_at(tmp_path / "other")
    running_cluster(data, "https://127.0.0.1:1234")
    target = find_target(TargetOptions(data_dir=data.path), {"TRAINWRIGHT_CONTEXT": "work"})
    assert target.config.server == "https://127.0.0.1:1234"
    assert target.kubectl == f"kubectl --kubeconfig {data.kubeconfig}"


def test_without_a_running_cluster_the_command_to_start_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"no embedded cluster is running in .*`trainwright up --detach`"):
        find_target(TargetOptions(), {})
    with pytest.raises(CommandError, match=f"`trainwright up --detach --data-dir {tmp_path}/other`"):
        find_target(TargetOptions(data_dir=tmp_path / "other"), {})


def test_a_context_selects_the_cluster_of_the_kubeconfig(home: Path) -> None:
    running_cluster(DataDir.default())
    kubeconfig(home / ".kube" / "config", "work", "https://work:6443")
    target = find_target(TargetOptions(context="work"), {})
    assert not target.embedded
    assert target.line == "→ context work at https://work:6443 (namespace default)"
    assert target.kubectl == "kubectl --context work"


def test_the_environment_can_name_the_context(home: Path) -> None:
    kubeconfig(home / ".kube" / "config", "work", "https://work:6443")
    assert find_target(TargetOptions(), {"TRAINWRIGHT_CONTEXT": "work"}).config.server == "https://work:6443"


def test_a_kubeconfig_selects_its_current_context(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "file", "lab", "https://lab:6443")
    target = find_target(TargetOptions(kubeconfig=file), {})
    assert target.config.context == "lab"
    assert target.kubectl == f"kubectl --kubeconfig {file} --context lab"


def test_our_own_context_is_the_embedded_cluster(home: Path) -> None:
    running_cluster(DataDir.default())
    kubeconfig(home / ".kube" / "config", "trainwright", SERVER)
    assert find_target(TargetOptions(context="trainwright"), {}).embedded


def test_an_unknown_context_is_named(home: Path) -> None:
    kubeconfig(home / ".kube" / "config", "work", "https://work:6443")
    with pytest.raises(CommandError, match="'wrok'"):
        find_target(TargetOptions(context="wrok"), {})


def test_conflicting_flags_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be combined"):
        find_target(TargetOptions(context="work", data_dir=tmp_path), {})


def test_a_namespace_changes_the_target() -> None:
    running_cluster(DataDir.default())
    target = find_target(TargetOptions(), {})
    assert target.in_namespace("lab").line.endswith("(namespace lab)")
    assert target.in_namespace(None) is target
