"""`image build` as users call it."""

import asyncio
import io
import json
import os
import re
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.cluster.supervised_pods import LAYERED_DIRECTORY
from tests.support.commands.trainwright import trainwright
from tests.support.images.faulty_registry import faulty_registry
from trainwright.cli.main import cli
from trainwright.cluster.data_directory_registry import register
from trainwright.cluster.datadir import DataDir
from trainwright.cluster.images.store import ImageStore


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("DOCKER_CONFIG", raising=False)
    (tmp_path / "home").mkdir()
    return tmp_path


@pytest.fixture
def context(tmp_path: Path) -> Path:
    directory = tmp_path / "context"
    directory.mkdir()
    (directory / "mnist.py").write_text("print('mnist')\n")
    return directory


Run = Callable[..., str]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Calls a command; returns its output, also what a child process prints, in which an ordinary user builds."""

    def call(*arguments: str | Path, stdin: str = "", code: int = 0) -> str:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main(["image", *map(str, arguments)])
        printed = "".join(capfd.readouterr())
        assert ended.value.code == code, printed
        return printed

    return call


def test_an_image_is_built_tagged_and_listed(run: Run, context: Path) -> None:
    (context / "Dockerfile").write_text(
        'FROM scratch\nARG P=x\nADD mnist.py /var/\nENTRYPOINT ["python", "/var/mnist.py"]\n'
    )

    printed = run("build", "-t", "rollingstones/mnist:1.0", "-t", "other", "--build-arg", "P=y", context)

    assert re.search(r"Successfully built (\w{12})\nSuccessfully tagged rollingstones/mnist:1.0\n", printed)
    assert printed.endswith("Successfully tagged other:latest\n")
    assert re.search(r"rollingstones/mnist +1.0 ", run("ls"))
    shown = json.loads(run("inspect", "rollingstones/mnist:1.0"))[0]
    assert shown["Config"]["Entrypoint"] == ["python", "/var/mnist.py"]


def test_labels_of_the_command_are_the_last_step(run: Run, context: Path) -> None:
    (context / "Dockerfile").write_text("FROM scratch AS one\nCOPY mnist.py /\nFROM one\nLABEL a=1 b=2\n")
    labels = {"b": "3", "text": "$HOME 'it' \\ \"x\"", "flag": ""}

    flags = [word for name, value in labels.items() for word in ("--label", f"{name}={value}" if value else name)]
    printed = run("build", "-t", "labelled", *flags, context)

    assert "\nStep 5/5 : LABEL b=3 " in printed
    assert json.loads(run("inspect", "-f", "{{json .Config.Labels}}", "labelled")) == {"a": "1", **labels}
    assert run("ls", "-a") == run("ls")


def test_pull_asks_the_registry_for_an_image_of_the_store(run: Run, context: Path) -> None:
    (context / "Dockerfile").write_text("FROM 127.0.0.1:9/base\nCOPY mnist.py /\n")
    run("build", "-t", "127.0.0.1:9/base", "-f", "-", context, stdin="FROM scratch\nCOPY mnist.py /\n")

    run("build", context)
    assert "127.0.0.1:9 is unreachable: Connection refused; without --pull the image of the store" in run(
        "build", "--pull", context, code=1
    )


def test_quiet_prints_the_id_alone(run: Run, context: Path) -> None:
    printed = run("build", "-q", "-f", "-", context, stdin="FROM scratch\nCOPY mnist.py /\n")

    assert re.fullmatch(r"sha256:[0-9a-f]{64}\n", printed)


def test_the_same_date_gives_the_same_image(run: Run, context: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    (context / "Dockerfile").write_text("FROM scratch\nCOPY mnist.py /mnist.py\nCMD x\n")

    first, second = (run("build", "-q", "--no-cache", context) for _ in range(2))

    assert first == second


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-t", "Upper/Case"], "must be lowercase"),
        (["--platform", "x"], "is not a platform"),
        (["--build-arg", "=1"], "it must be NAME=VALUE"),
        (["-f", "nothing"], "unable to read the Dockerfile"),
        (["--target", "x"], "the target stage 'x' is not in the Dockerfile"),
        (["--strict"], "without --strict the files of this machine would stand in for it"),
    ],
)
def test_a_mistake_is_one_line(run: Run, context: Path, arguments: list[str], message: str) -> None:
    (context / "Dockerfile").write_text("FROM 127.0.0.1:1/nothing\n")

    printed = run("build", *arguments, context, code=1)

    assert message in printed
    assert printed.count("\n") == 1


async def test_a_registry_that_refuses_is_an_error(run: Run, context: Path) -> None:
    async with faulty_registry() as registry:
        (context / "Dockerfile").write_text(f"FROM {registry.address}/nothing:1\n")
        printed = await asyncio.to_thread(run, "build", context, code=1)

    assert "manifest unknown to registry" in printed


def test_without_a_registry_the_files_of_this_machine_stand_in(run: Run, context: Path, home: Path) -> None:
    (context / "Dockerfile").write_text(
        "FROM 127.0.0.1:1/pytorch\nRUN apk add git\nWORKDIR /opt/app\nADD mnist.py .\nRUN python mnist.py > out\n"
    )
    flags = ("--python", sys.executable, "--skip-run", "apk *")

    printed = run("build", "-t", "over-the-host", *flags, context)

    assert "127.0.0.1:1/pytorch is not in the store, and 127.0.0.1:1 is unreachable" in printed
    shown = json.loads(run("inspect", "over-the-host"))[0]
    assert shown["HostFiles"] is True
    assert shown["SkippedRun"] == ["apk add git"]
    layer = ImageStore(home / "data/trainwright/images").layers / shown["RootFS"]["Layers"][-1].partition(":")[2]
    assert (layer / "opt/app/out").read_text() == "mnist\n"


def test_a_dockerfile_on_standard_input_needs_no_context(run: Run) -> None:
    printed = run("build", "-t", "piped", "-", stdin="FROM scratch\nCOPY <<EOF /a\nhello\nEOF\nLABEL a=b\n")
    assert printed.endswith("Successfully tagged piped:latest\n")

    printed = run("build", "-", stdin="FROM scratch\nCOPY mnist.py /\n", code=1)
    assert "Dockerfile:2:1: COPY mnist.py /: file not found in build context" in printed


def test_secrets_are_files_or_variables(run: Run, context: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "from the environment")
    monkeypatch.chdir(context)
    dockerfile = (
        "FROM 127.0.0.1:1/nothing\nRUN --mount=type=secret,id=TOKEN --mount=type=secret,id=b "
        "--mount=type=secret,id=c,env=C cat /run/secrets/TOKEN /run/secrets/b; echo $C\n"
    )
    secrets = ("--secret", "id=TOKEN", "--secret", "id=b,src=mnist.py", "--secret", "type=env,id=c,src=TOKEN")

    printed = run("build", "-f", "-", "--python", sys.executable, *secrets, context, stdin=dockerfile)

    assert "\nfrom the environmentprint('mnist')\nfrom the environment\n" in printed


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        ("src=x", "it must be id=NAME,src=FILE or id=NAME,env=VARIABLE"),
        ("id=x,env=NOT_SET", "the variable NOT_SET is not set"),
        ("id=x,src=missing", "cannot read missing: No such file or directory"),
    ],
)
def test_a_secret_that_cannot_be_read_is_one_line(run: Run, context: Path, secret: str, message: str) -> None:
    printed = run("build", "--secret", secret, context, code=1)

    assert printed == f"Error: --secret {secret!r}: {message}\n"


def test_a_build_without_a_directory_says_what_to_name(run: Run, context: Path) -> None:
    (context / "Dockerfile").write_text("ARG BASE\nFROM $BASE\nCOPY ../data /\n")

    assert "name the directory to build from, . for this one" in run("build", "-t", "demo", code=2)
    assert f"{context}/Dockerfile is a file: name the directory to build from, and" in run(
        "build", context / "Dockerfile", code=1
    )
    assert "Error: Dockerfile:2:1: FROM $BASE: base name ($BASE) should not be blank: give it with --build-arg" in run(
        "build", context, code=1
    )
    assert "stat ../data: file does not exist; .. does not lead out of it" in run(
        "build", "--build-arg", "BASE=scratch", context, code=1
    )


def test_flags_of_docker_that_change_nothing_are_accepted(run: Run, context: Path) -> None:
    (context / "Dockerfile").write_text("FROM scratch\nCOPY mnist.py /\n")
    flags = ("--load", "--provenance=false", "--sbom", "false", "--cache-from", "x", "--progress=plain", "--force-rm")

    printed = run("build", "-q", *flags, "--iidfile", context / "id", context)

    assert (context / "id").read_text() == printed.strip()


def test_an_ssh_agent_must_run(run: Run, context: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)

    assert "--ssh default: no SSH agent runs: start one with " in run("build", "--ssh", "default", context, code=1)
    assert "is not the socket of an SSH agent; keys are added with `ssh-add`" in run(
        "build", "--ssh", f"default={context}/mnist.py", context, code=1
    )


@pytest.mark.parametrize("program", ["/proc/self/exe", "/app/link", "/app/script"])
def test_a_run_line_cannot_change_the_python_of_the_build(context: Path, program: str) -> None:
    """Until its program is executed, the process of a RUN line is that Python."""
    python = Path(sys.executable).resolve()
    mode = stat.S_IMODE(python.stat().st_mode)
    change = f"import os; os.chmod('/proc/self/exe', {mode | stat.S_ISVTX})"
    (context / "code.py").write_text(change)
    (context / "link").symlink_to("/proc/self/exe")
    (context / "script").write_text("#!/proc/self/exe /app/code.py\n")
    (context / "script").chmod(0o755)
    argv = json.dumps([program] if program.endswith("script") else [program, "-c", change])
    (context / "Dockerfile").write_text(f"FROM no.such.registry/base\nCOPY . /app/\nRUN {argv}\n")
    try:
        built = trainwright("image", "build", "-t", "evil", str(context), environment=dict(os.environ))
        assert "/app" in built.all or built.code == 0, built.all
        assert stat.S_IMODE(python.stat().st_mode) == mode
    finally:
        if os.access(python, os.W_OK):
            python.chmod(mode)


def test_a_run_line_sees_no_data_of_any_cluster(run: Run, context: Path) -> None:
    with TemporaryDirectory(prefix="cluster-", dir=LAYERED_DIRECTORY) as directory:
        data = DataDir(Path(directory) / "data")
        data.create()
        data.token()
        register(data)
        shown = f"ls -A {directory}; echo found: $(ls -A {data.path})"
        (context / "Dockerfile").write_text(f"FROM no.such.registry/base\nRUN {shown}\n")
        printed = run("build", "-t", "curious", context)
    assert "found:\n" in printed
