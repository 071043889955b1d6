"""`image pull`, `push`, `login` and `logout` with a real registry."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import click.testing
import pytest

from tests.support.commands.terminal import on_terminal
from tests.support.commands.trainwright import command_line
from tests.support.images.builder import add_image
from tests.support.images.registry import PASSWORD, USER, running_registry
from trainwright.cli.main import cli
from trainwright.cluster.images.formats import HOST_FILES_LABEL, RunConfig
from trainwright.cluster.images.store import ImageStore

pytestmark = pytest.mark.registry


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_registry(tmp_path_factory.mktemp("registry"), passwords=True) as address:
        yield address


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("DOCKER_CONFIG", raising=False)
    return tmp_path


def run(*arguments: str, stdin: str = "", code: int = 0) -> str:
    result = click.testing.CliRunner().invoke(cli, ["image", *arguments], input=stdin)
    assert result.exit_code == code, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.output


def login(registry: str) -> None:
    run("login", registry, "-u", USER, "--password-stdin", stdin=f"{PASSWORD}\n")


def store() -> ImageStore:
    return ImageStore(Path(os.environ["XDG_DATA_HOME"]) / "trainwright" / "images")


def test_push_prints_what_docker_prints(registry: str) -> None:
    login(registry)
    base = {"base.txt": b"base" * 300}
    add_image(store(), f"{registry}/pytorch/pytorch:1.0", (base,))
    name = f"{registry}/rollingstones/pytorch-dist-mnist-test:1.0"
    image = add_image(store(), name, (base, {"mnist.py": b"print()"}))
    lower, upper = (diff_id[7:19] for diff_id in image.config.rootfs.diff_ids)
    run("push", f"{registry}/pytorch/pytorch:1.0")

    printed = run("push", name).splitlines()

    assert printed[0] == f"The push refers to repository [{registry}/rollingstones/pytorch-dist-mnist-test]"
    assert sorted(printed[1:3]) == sorted([f"{upper}: Pushed", f"{lower}: Mounted from pytorch/pytorch"])
    assert printed[3] == f"1.0: digest: {image.descriptor.digest} size: {image.descriptor.size}"
    assert f"{lower}: Layer already exists" in run("push", name)
    assert run("push", "-q", name) == f"{name}\n"


def test_push_uploads_one_tag_or_all(registry: str) -> None:
    login(registry)
    name = f"{registry}/several"
    for number in (1, 2):
        add_image(store(), f"{name}:{number}", ({"a": b"%d" % number},))
    add_image(store(), f"{name}-more:1")

    printed = run("push", "-a", name)

    assert [line.partition(": digest: ")[0] for line in printed.splitlines() if ": digest: " in line] == ["1", "2"]
    assert "--all-tags is for a repository, without a tag" in run("push", "-a", f"{name}:1", code=1)
    assert "does not exist locally with the tag: " in run("push", name, code=1)
    run("tag", f"{name}:1", name)
    assert run("push", name).startswith(f"Using default tag: latest\nThe push refers to repository [{name}]\n")


def test_push_warns_of_an_image_that_runs_nowhere_else(registry: str) -> None:
    login(registry)
    name = f"{registry}/host-files"
    add_image(store(), name, config=RunConfig(labels={HOST_FILES_LABEL: "true"}))

    assert f"Warning: {name}:latest lies over the files of this machine" in run("push", name)


def test_pull_replaces_a_damaged_image(registry: str) -> None:
    login(registry)
    name = f"{registry}/damaged"
    image = add_image(store(), name, ({"a": b"1"},))
    run("push", name)
    config = store().blob_path(image.id)
    config.write_bytes(b" " * config.stat().st_size)

    assert "was changed: its content does not have its digest" in run("inspect", name, code=1)
    assert f"Status: Downloaded newer image for {name}:latest" in run("pull", name)
    assert [found.id for found in store().images()] == [image.id]


def test_pull_prints_what_docker_prints(registry: str) -> None:
    login(registry)
    name = f"{registry}/app"
    image = add_image(store(), name, ({"a": b"1"},))
    run("push", name)
    run("rm", name)
    layer = image.manifest.layers[0].hex[:12]

    assert run("pull", name).splitlines() == [
        "Using default tag: latest",
        "latest: Pulling from app",
        f"{layer}: Pull complete",
        f"Digest: {image.descriptor.digest}",
        f"Status: Downloaded newer image for {name}:latest",
        f"{name}:latest",
    ]
    again = run("pull", name)
    assert f"{layer}: Already exists" in again
    assert f"Status: Image is up to date for {name}:latest" in again
    assert run("pull", "-q", name) == f"{name}:latest\n"
    assert run("ls", "-q").split() == [image.short_id]


def test_login_and_logout(registry: str, home: Path) -> None:
    config = home / ".docker" / "config.json"

    refused = run("login", registry, "-u", USER, "-p", "wrong", code=1)
    assert "rejected the credentials" in refused or "denied access: unauthorized" in refused
    assert not config.exists()
    printed = run("login", registry, stdin=f"{USER}\n{PASSWORD}\n")
    assert printed.endswith("Login Succeeded\n")
    assert f"stored unencrypted in {config}" in printed
    assert config.stat().st_mode & 0o777 == 0o600
    assert run("logout", registry) == f"Removing login credentials for {registry}\n"
    assert run("logout", registry) == f"Not logged in to {registry}\n"


def test_login_refuses_what_docker_refuses() -> None:
    assert "mutually exclusive" in run("login", "-u", "a", "-p", "b", "--password-stdin", code=1)
    assert "must provide --username" in run("login", "--password-stdin", code=1)
    assert "standard input has no username and password" in run("login", "-u", "a", stdin="", code=1)


def test_access_without_login_says_what_to_do(registry: str) -> None:
    printed = run("pull", f"{registry}/secret", code=1)

    assert "unauthorized: authentication required" in printed
    assert f"log in with `trainwright image login {registry}`" in printed
    assert store().images() == []


def test_terminal_shows_layers_that_are_done(registry: str, home: Path) -> None:
    login(registry)
    name = f"{registry}/shown"
    add_image(store(), name, ({"a": b"1" * 100_000},))
    run("push", name)
    run("rm", name)
    environment = {"HOME": str(home), "XDG_DATA_HOME": str(home / "data"), "PATH": os.environ["PATH"]}

    with on_terminal(command_line("image", "pull", name), environment) as terminal:
        assert terminal.wait() == 0

    assert re.search(r"[0-9a-f]{12}: Pulling fs layer", terminal.output)
    assert re.search(r"[0-9a-f]{12}: Pull complete\r\n", terminal.output)
