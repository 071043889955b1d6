"""The images of seeds 001 and 003: built, tagged, listed, pushed and pulled with the commands of the seeds.

Their base cannot be had here, so the files of this machine stand in for it. What the how-to lists as a correction is
corrected: tensorboardX 1.6.0, in place of which a wheel of this test is installed.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.images.registry import running_registry
from tests.support.images.seed_images import SEED_001, SEED_003, SKIPPED, make_wheel
from trainwright.cli.main import cli
from trainwright.cluster.images.registry.errors import UnreachableRegistryError

pytestmark = pytest.mark.registry


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_registry(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture(autouse=True)
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory with the programs, in which the commands run."""
    for name in ("HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
        (tmp_path / name.lower()).mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    wheels = Path(tempfile.mkdtemp(dir="/var/tmp"))
    make_wheel(wheels)
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    directory = tmp_path / "context"
    directory.mkdir()
    for name in ("mnist.py", "mnist_training.py"):
        (directory / name).write_text("import tensorboardX\n")
    monkeypatch.chdir(directory)
    yield directory
    shutil.rmtree(wheels)


def build(capfd: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """Builds while Docker Hub is unreachable, as it is on many machines of clusters."""

    async def refuse(*_: object, **__: object) -> None:
        raise UnreachableRegistryError("docker.io is unreachable: Name or service not known")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainwright.cluster.images.registry.pull.pull_image", refuse)
        return run(capfd, "build", *words)


def run(capfd: pytest.CaptureFixture[str], *words: str) -> list[str]:
    """The lines that a command prints, with ids as `ID`."""
    capfd.readouterr()
    cli.main(["image", *words], standalone_mode=False)
    printed = capfd.readouterr().out
    return re.sub(r"\b[0-9a-f]{12}\b", "ID", printed).splitlines()


def test_seed_001_builds_tags_pushes_and_lists(context: Path, registry: str, capfd: pytest.CaptureFixture[str]) -> None:
    (context / "Dockerfile_training").write_text(SEED_001)
    name = f"{registry}/joleedocker/traindb-training-mnist:1.0"

    printed = build(capfd, "-f", "Dockerfile_training", "-t", "traindb-training-mnist", *SKIPPED, ".")
    run(capfd, "tag", "traindb-training-mnist", name)
    pushed = run(capfd, "push", name)
    listed = run(capfd, "ls")

    assert 'Step 13/13 : ENTRYPOINT ["python3", "/opt/mnist/src/mnist_training.py"]' in printed
    assert "Successfully tagged traindb-training-mnist:latest" in printed
    assert pushed[0] == f"The push refers to repository [{registry}/joleedocker/traindb-training-mnist]"
    assert pushed[-1].startswith("1.0: digest: sha256:")
    assert listed[0].split() == ["REPOSITORY", "TAG", "IMAGE", "ID", "CREATED", "SIZE"]
    assert [line.split()[:3] for line in listed[1:]] == [
        [f"{registry}/joleedocker/traindb-training-mnist", "1.0", "ID"],
        ["traindb-training-mnist", "latest", "ID"],
    ]
    run(capfd, "rm", name, "traindb-training-mnist")
    assert f"Status: Downloaded newer image for {name}" in run(capfd, "pull", name)
    shown = json.loads("\n".join(run(capfd, "inspect", name)))[0]
    assert shown["SkippedRun"] == [
        "apt update",
        "apt install software-properties-common -y",
        "add-apt-repository ppa:deadsnakes/ppa -y",
        "apt install python3.7 --version -y",
    ]
    assert shown["HostFiles"] is True


def test_seed_003_prints_the_steps_of_the_seed(context: Path, registry: str, capfd: pytest.CaptureFixture[str]) -> None:
    (context / "Dockerfile").write_text(SEED_003)
    name = f"{registry}/rollingstones/pytorch-dist-mnist-test:1.0"

    printed = build(capfd, "-t", name, ".")
    pushed = run(capfd, "push", name)

    start = printed.index("Installing collected packages: tensorboardX")
    steps = [line for line in printed[start:] if line and not line.startswith(("[notice]", "WARNING"))]
    assert steps == [
        "Installing collected packages: tensorboardX",
        "Successfully installed tensorboardX-2.6.5",
        "Removing intermediate container ID",
        " ---> ID",
        "Step 3/5 : WORKDIR /var",
        " ---> Running in ID",
        "Removing intermediate container ID",
        " ---> ID",
        "Step 4/5 : ADD mnist.py /var",
        " ---> ID",
        'Step 5/5 : ENTRYPOINT ["python", "/var/mnist.py"]',
        " ---> Running in ID",
        "Removing intermediate container ID",
        " ---> ID",
        "Successfully built ID",
        f"Successfully tagged {name}",
    ]
    assert pushed[0] == f"The push refers to repository [{registry}/rollingstones/pytorch-dist-mnist-test]"
    assert any(line == "ID: Pushed" for line in pushed)
    assert re.fullmatch(r"1.0: digest: sha256:[0-9a-f]{64} size: \d+", pushed[-1])
