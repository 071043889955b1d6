"""The kubectl of launchers, against the embedded cluster and with wrong arguments."""

import json
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.cluster.node.pods.images import kubectl
from trainwright.cluster.node.pods.images.builtin_images import MODULES
from trainwright.cluster.node.pods.images.standalone_python import command as standalone_command
from trainwright.cluster.node.pods.images.standalone_python import make_standalone

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kubectl with the Python that runs it."""
    return make_standalone(tmp_path_factory.mktemp("python"), Path(kubectl.__file__), MODULES)


@pytest.fixture
def run(tmp_path: Path, program: Path) -> Kubectl:
    """Runs the program as a launcher does, with the given variables alone."""

    def call(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [*standalone_command(str(program), "kubectl"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)

    return call


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["get", "pods"],
        ["exec", "worker-0"],
        ["exec", "--", "true"],
        ["wait", "pod/a"],
        ["exec", "-it", "a", "--", "b"],
    ],
    ids=" ".join,
)
def test_what_it_does_not_know_is_one_line_with_what_it_knows(run: Kubectl, arguments: list[str]) -> None:
    done = run(*arguments, KUBERNETES_SERVICE_HOST="127.0.0.1", KUBERNETES_SERVICE_PORT="1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "this kubectl knows `exec POD" in done.stderr or "no service account" in done.stderr


def test_it_brings_all_modules_and_libraries_that_it_uses(program: Path) -> None:
    """None of them is found elsewhere: the image of a launcher may have no Python."""
    find = "import sys, json, os, time, _ssl, _socket; print(*sys.path); print(open('/proc/self/maps').read())"
    command = [*standalone_command(str(program), "kubectl")[:-1], "-c", find]
    path, *maps = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert all(Path(part).is_relative_to(program) for part in path.split())
    libraries = {line.split()[-1] for line in maps if ".so" in line}
    assert libraries
    assert all(Path(file).is_relative_to(program) for file in libraries), libraries


def test_a_copy_is_made_once(program: Path) -> None:
    changed = (program / "kubectl.pyc").stat().st_mtime_ns
    assert make_standalone(program.parent, Path(kubectl.__file__), MODULES) == program
    assert (program / "kubectl.pyc").stat().st_mtime_ns == changed


def test_outside_of_a_pod_it_says_so(run: Kubectl) -> None:
    done = run("exec", "worker-0", "--", "true")
    assert done.returncode == 1
    assert done.stderr == "error: 'KUBERNETES_SERVICE_HOST' is not set: this program runs in pods\n"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ({"status": "Success"}, 0),
        ({"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "3"}]}}, 3),
    ],
)
def test_exit_code_is_that_of_the_command(status: dict[str, object], code: int) -> None:
    assert kubectl.exit_code(json.dumps(status).encode()) == code


def test_a_command_that_cannot_be_run_is_the_servers_message() -> None:
    with pytest.raises(kubectl.KubectlError, match="no such container"):
        kubectl.exit_code(b'{"status": "Failure", "message": "no such container"}')


def test_it_waits_for_an_api_server_that_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))

        def start_listening(seconds: float) -> None:
            waits.append(seconds)
            server.listen()

        monkeypatch.setattr("time.sleep", start_listening)
        kubectl.connect(*server.getsockname()).close()
    assert waits == [kubectl.RETRY_SECONDS]


def pod(name: str, ready: str = "True") -> dict[str, object]:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> kubectl.Cluster:
    monkeypatch.setattr(kubectl, "SERVICE_ACCOUNT", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "1")
    for name in ("token", "namespace"):
        (tmp_path / name).write_text(name)
    return kubectl.Cluster({})


def test_it_waits_until_all_pods_have_been_ready(cluster: kubectl.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    events = iter([pod("other"), pod("a"), pod("b", "False"), pod("a", "False"), pod("b"), pod("unread")])
    monkeypatch.setattr(kubectl, "watch", lambda *_: events)
    assert kubectl.wait(cluster, ["pod/a", "pod/b"], {"for": "condition=Ready"}) == 0
    assert next(events)["metadata"] == {"name": "unread"}


def test_many_pods_that_are_not_ready_are_one_short_line(
    cluster: kubectl.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubectl, "watch", lambda *_: iter([pod("w-0")]))
    with pytest.raises(kubectl.KubectlError) as raised:
        kubectl.wait(cluster, [f"pod/w-{number}" for number in range(1000)], {"for": "condition=Ready"})
    assert str(raised.value).startswith("timed out waiting for the condition on pods/w-1, pods/w-10, ")
    assert str(raised.value).endswith(", 994 more")
