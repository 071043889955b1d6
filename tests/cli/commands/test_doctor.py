"""`trainwright doctor` and `completion`."""

import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.conftest import Call
from tests.support.cluster.embedded_cluster import UpCommand
from tests.support.commands.trainwright import trainwright
from tests.support.objects.shell_jobs import shell_job
from trainwright.api.kinds import PYTORCH
from trainwright.cli.commands import doctor
from trainwright.cli.main import cli
from trainwright.cluster.facade import DataDir
from trainwright.cluster.node.node_registration import shared_ports_text
from trainwright.kube.client.sync_client import SyncClient


def test_a_healthy_machine_and_cluster_pass(call: Call) -> None:
    answer = call("doctor")
    assert answer.code == 0, answer.all
    topics = [line.split()[1] for line in answer.out.splitlines() if line.startswith(("ok", "note"))]
    assert topics[:3] == ["version", "python", "sandbox"]
    assert {"ports", "disk", "memory", "files", "gpu", "cluster", "context", "kubectl", "py-spy"} <= set(topics)


def test_shared_ports_come_with_the_reason_and_the_fix() -> None:
    found = doctor.ports_finding(shared_ports_text("the kernel is too old"))
    assert (found.level, found.text) == (
        "note",
        "pods have the ports of this machine: the kernel is too old; two pods cannot listen on the same port",
    )
    assert found.advice.startswith("Pods have their own with Linux 5.9 or later")
    assert doctor.ports_finding("").level == "ok"


def test_ports_are_tried_without_a_cluster(tmp_path: Path) -> None:
    assert [found.topic for found in doctor.check_sandbox(DataDir(tmp_path / "none"))] == ["sandbox", "ports"]


def test_the_python_is_the_one_that_run_would_use(embedded: UpCommand, tmp_path: Path) -> None:
    record = embedded.data.running()
    assert record is not None
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    environment = {**embedded.environment, "VIRTUAL_ENV": str(tmp_path / "env")}
    answer = trainwright("doctor", "--data-dir", str(embedded.data.path), environment=environment)
    [line] = [line for line in answer.out.splitlines() if line[6:].startswith("python ")]
    assert f"{python} (the active environment): Python 3." in line
    assert line.endswith(f"; jobs that kubectl creates use {record.python}")


def test_a_torch_without_bytecode_is_named_with_the_command_that_compiles_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    venv.create(tmp_path / "env", symlinks=True)
    [packages] = (tmp_path / "env" / "lib").glob("*/site-packages")
    (packages / "torch").mkdir()
    (packages / "torch" / "__init__.py").touch()
    (packages / "torch-9.0.dist-info").mkdir()
    (packages / "torch-9.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.0\n")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "env"))

    [found] = doctor.check_python(DataDir(tmp_path / "none"))
    assert (found.level, found.text.endswith("torch 9.0 without bytecode")) == ("note", True)
    subprocess.run(found.advice.partition("Do it once: ")[2].split(), check=True)

    [found] = doctor.check_python(DataDir(tmp_path / "none"))
    assert (found.level, found.text.endswith("torch 9.0")) == ("ok", True)


def test_what_is_broken_ends_with_1_and_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: DataDir) -> Iterator[doctor.Finding]:
        _ = data
        yield doctor.Finding("port", "127.0.0.1:6443: Address already in use", "FAIL", "choose another port")

    monkeypatch.setattr(doctor, "CHECKS", (broken,))
    result = CliRunner().invoke(cli, ["doctor", "--data-dir", str(tmp_path)])
    assert result.exit_code == 1
    assert result.output == (
        "FAIL  port       127.0.0.1:6443: Address already in use\n                 choose another port\n"
    )


def test_without_a_cluster_the_machine_is_checked(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["doctor", "--data-dir", str(tmp_path / "none")])
    assert result.exit_code == 0, result.output
    assert "start it: trainwright up --detach" in result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_printed(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert "_TRAINWRIGHT_COMPLETE" in result.output


def test_commands_flags_and_names_of_jobs_are_completed(embedded: UpCommand, call: Call) -> None:
    with SyncClient(embedded.config) as client:
        client.create(PYTORCH.resource, shell_job("digits", "true", runPolicy={"suspend": True}), namespace="default")
    _ = call

    def complete(words: str, index: int) -> list[str]:
        variables = {"_TRAINWRIGHT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(index)}
        script = str(Path(sys.executable).parent / "trainwright")
        done = subprocess.run(
            [script], env={**embedded.environment, **variables}, capture_output=True, text=True, check=False
        )
        return [line.partition(",")[2] for line in done.stdout.splitlines()]

    data = f"--data-dir {embedded.data.path}"
    assert complete("trainwright sus", 1) == ["suspend"]
    assert complete(f"trainwright logs {data} di", 4) == ["digits"]
    assert complete(f"trainwright logs {data} pytorch", 4) == ["pytorchjob/digits"]
    assert "--timestamps" in complete("trainwright logs --time", 2)
    assert trainwright("completion", "csh", environment=embedded.environment).code == 2
