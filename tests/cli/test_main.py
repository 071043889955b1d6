"""The entry point: it starts fast, lists the commands and suggests corrections."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from trainwright import __version__
from trainwright.cli.main import COMMANDS, cli

HEAVY = {"aiohttp", "asyncio", "yaml", "msgspec", "cryptography", "ssl"}


@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["--version"]])
def test_simple_commands_import_nothing_heavy(arguments: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "trainwright", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "trainwright.cli.main" in imported
    assert not HEAVY & imported


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files to others")
def test_a_home_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `sudo` that keeps HOME: its .gitconfig and its Python packages would run as root."""
    os.chown(tmp_path, 46_666, -1)
    monkeypatch.setenv("HOME", str(tmp_path))
    for command in ("doctor", "image", "ps"):
        result = CliRunner().invoke(cli, [command])
        assert result.exit_code == 1
        assert f"HOME={tmp_path} belongs to another user" in result.output
        assert "sudo -H" in result.output
    assert CliRunner().invoke(cli, ["version"]).exit_code == 0
    monkeypatch.setenv("HOME", "/")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert f"XDG_CONFIG_HOME={tmp_path} belongs" in CliRunner().invoke(cli, ["ps"]).output
    os.chown(tmp_path, 0, -1)
    assert CliRunner().invoke(cli, ["image"]).exit_code != 1


def test_version_is_printed() -> None:
    result = CliRunner().invoke(cli, ["version"])
    assert (result.exit_code, result.output) == (0, f"trainwright {__version__}\n")


def test_help_lists_every_command() -> None:
    result = CliRunner().invoke(cli, ["--help"])
    assert result.exit_code == 0
    assert all(f"  {name} " in result.output for name in COMMANDS)
    examples = [line.split()[:3] for line in result.output.splitlines() if line.startswith("    trainwright ")]
    assert examples[0] == ["trainwright", "run", "train.py"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_begins_as_the_list_says(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert COMMANDS[name] in result.output


def test_ctrl_c_ends_a_command_with_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(click.Command, "invoke", lambda command, ctx: interrupted())
    result = CliRunner().invoke(cli, ["version"])
    assert (result.exit_code, result.stderr) == (130, "Interrupted\n")


def test_closed_standard_input_is_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    build = f'exec "{sys.executable}" -m trainwright image build --data-dir "$0/data" -q "$0" <&-'

    done = subprocess.run(["sh", "-c", build, str(tmp_path)], capture_output=True, text=True, check=False)

    assert done.stdout.startswith("sha256:"), done.stderr


def test_a_misspelled_command_gets_a_suggestion() -> None:
    result = CliRunner().invoke(cli, ["stauts"])
    assert result.exit_code == 2
    assert "did you mean `status`?" in result.output


def test_an_unknown_command_gets_the_list() -> None:
    result = CliRunner().invoke(cli, ["frobnicate"])
    assert result.exit_code == 2
    assert ", ".join(COMMANDS) in result.output
