"""Every command in README and docs runs, and prints what the page shows."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.commands.console_blocks import Step, read_steps, run_steps, shows
from tests.support.commands.helm import helm_binary
from tests.support.images.builder import add_image
from tests.support.images.registry import running_registry
from tests.support.kubernetes.controlplane import free_ports, running_control_plane
from trainwright.cluster.datadir import DataDir
from trainwright.cluster.images.formats import RunConfig
from trainwright.cluster.images.registry.push import push_image
from trainwright.cluster.images.store import ImageStore

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("examples/**/*.md"))]
WITH_COMMANDS = [page for page in PAGES if read_steps(page)]
PORT = "28081"
"""Of this machine, in a page; another run of the tests may have it."""
ON_A_CLUSTER = [page for page in PAGES if read_steps(page, on_a_cluster=True)]


@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_commands_of_a_page_print_what_it_shows(page: Path, tmp_path: Path, kubectl_binary: Path) -> None:
    bin_directory = Path(sys.executable).parent
    env = {
        "HOME": str(tmp_path),
        "PATH": f"{bin_directory}:{kubectl_binary.parent}:{os.environ['PATH']}",
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
        "LANG": "C.UTF-8",
    }
    port = str(free_ports(1)[0])
    steps = [replace(step, command=step.command.replace(PORT, port)) for step in read_steps(page)]
    with ExitStack() as stack:
        if "$REGISTRY" in page.read_text():
            env["REGISTRY"] = stack.enter_context(registry_of_the_pages(tmp_path))
        try:
            results = run_steps(steps, directory=ROOT, env=env, timeout=580)
        finally:
            if DataDir(tmp_path / ".local" / "share" / "trainwright").running() is not None:
                subprocess.run([bin_directory / "trainwright", "down"], env=env, check=False, capture_output=True)

    check(steps, results)


@contextmanager
def registry_of_the_pages(directory: Path) -> Iterator[str]:
    """A registry with the image team/trainer:1.0, which pages may name."""
    with running_registry(directory / "registry") as address:
        store = ImageStore(directory / "pushed")
        config = RunConfig(cmd=["python3", "/opt/train.py"])
        image = add_image(store, f"{address}/team/trainer:1.0", ({"opt/train.py": b"print('training')\n"},), config)
        assert image.reference
        asyncio.run(push_image(store, image, image.reference))
        yield address


@pytest.mark.apiserver
@pytest.mark.parametrize("page", ON_A_CLUSTER, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_for_a_cluster_print_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    steps = read_steps(page, on_a_cluster=True)
    with running_control_plane(tmp_path / "plane") as plane:
        path = f"{helm_binary().parent}:{plane.kubectl.parent}:{os.environ['PATH']}"
        env = {"HOME": str(tmp_path), "PATH": path, "KUBECONFIG": str(plane.kubeconfig), "LANG": "C.UTF-8"}
        subprocess.run(["kubectl", "create", "namespace", "kubeflow"], env=env, check=True)
        results = run_steps(steps, directory=ROOT, env=env, timeout=110)
    check(steps, results)


def check(steps: list[Step], results: list[tuple[int, str]]) -> None:
    for step, (code, output) in zip(steps, results, strict=True):
        # Notes depend on the machine, for example on a port that is in use.
        printed = "".join(line for line in output.splitlines(keepends=True) if not line.startswith("Note: "))
        if code != 0 or (step.expected.strip() and not shows(step.expected, printed)):
            pytest.fail(
                f"$ {step.command}\nended with {code} and printed\n{output}\nThe page shows\n{step.expected}",
                pytrace=False,
            )


def test_three_dots_match_anything_and_the_rest_must_match() -> None:
    assert shows("ready in ... s\n", "ready in 0.9 s\n")
    assert shows("a\n...\nb\n", "a\nx\ny\nb\n")
    assert not shows("ready in ... s\n", "failed\n")


def test_a_block_marked_as_not_run_is_skipped(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    blocks = (
        "```console\n$ one\nout\n```",
        "```console (not run: needs a GPU)\n$ two\n```",
        "```console (on a cluster)\n$ three\n```",
    )
    page.write_text("\n".join(blocks) + "\n")
    assert read_steps(page) == [Step("one", "out\n")]
    assert read_steps(page, on_a_cluster=True) == [Step("three", "")]
