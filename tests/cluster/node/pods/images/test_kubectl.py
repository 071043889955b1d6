"""The kubectl of launchers, against the embedded cluster and with wrong arguments."""

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from trainwright.cluster.node.pods.images import kubectl
from trainwright.cluster.node.pods.images.builtin_images import MODULES, make_standalone
from trainwright.cluster.node.pods.images.builtin_images import command as standalone_command

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
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "this kubectl knows `exec POD" in done.stderr


def test_it_brings_all_modules_and_libraries_that_it_uses(program: Path) -> None:
    """None of them is found elsewhere: the image of a launcher may have no Python."""
    find = f"import sys, {', '.join(MODULES)}; print(*sys.path); print(open('/proc/self/maps').read())"
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
    assert done.stderr.startswith("error: the pod has no service account: ")


def pod(name: str, ready: str = "True") -> dict[str, object]:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> kubectl.Cluster:
    monkeypatch.setattr(kubectl, "SERVICE_ACCOUNT", str(tmp_path))
    monkeypatch.setattr(kubectl, "API_SOCKET", str(tmp_path / "api.sock"))
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


class ApiServer:
    """Answers each connection with the next of the answers, then ends it as a process does that is killed. With the
    last one it sends a session. It starts to listen when kubectl has tried once."""

    def __init__(self, path: str, *answers: bytes, session: bytes = b"") -> None:
        self.waits: list[float] = []
        self._path = path
        self._answers = answers
        self._session = session
        self._listener = socket.socket(socket.AF_UNIX)

    def sleep(self, seconds: float) -> None:
        if not self.waits:
            self._listener.bind(self._path)
            self._listener.listen()
            threading.Thread(target=self._serve).start()
        self.waits.append(seconds)

    def _serve(self) -> None:
        with self._listener:
            for number, answer in enumerate(self._answers, 1):
                connection, _ = self._listener.accept()
                with connection, Path(os.devnull).open("rb") as file:
                    connection.recv(10000)
                    connection.send(answer)
                    if self._session and number == len(self._answers):
                        socket.send_fds(connection, [self._session], [file.fileno()] * 3)


SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"


def test_it_asks_again_until_it_has_the_descriptors(
    cluster: kubectl.Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever the API server was killed: nothing has been started."""
    answers = (b"", b"HTTP/1.1 101", SWITCHING, b"HTTP/1.1 503 Stop\r\n\r\n", SWITCHING)
    server = ApiServer(kubectl.API_SOCKET, *answers, session=b"\x82\x01\x00")
    monkeypatch.setattr("time.sleep", server.sleep)

    descriptors = kubectl.while_down(lambda: kubectl.prepare(cluster, "/"), time.monotonic() + 60)

    assert [os.fstat(one).st_mode for one in descriptors] == [Path(os.devnull).stat().st_mode] * 3
    for descriptor in descriptors:
        os.close(descriptor)
    assert server.waits == [kubectl.RETRY_SECONDS] * 5
    assert capsys.readouterr().err == "waiting for the API server\n"


def test_it_gives_up_in_the_end(cluster: kubectl.Cluster) -> None:
    with pytest.raises(kubectl.KubectlError, match="the API server does not answer"):
        kubectl.while_down(lambda: kubectl.prepare(cluster, "/"), time.monotonic() - 1)


def test_a_wait_goes_on_after_a_restart_of_the_api_server(
    cluster: kubectl.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def event(name: str) -> bytes:
        line = json.dumps({"type": "ADDED", "object": pod(name)}).encode() + b"\n"
        return b"HTTP/1.1 200 OK\r\n\r\n%x\r\n%b\r\n" % (len(line), line)

    server = ApiServer(kubectl.API_SOCKET, event("a"), event("b"))
    monkeypatch.setattr("time.sleep", server.sleep)
    assert kubectl.wait(cluster, ["pod/a", "pod/b"], {"for": "condition=Ready", "timeout": "60s"}) == 0


def test_a_timeout_that_is_not_in_seconds_is_refused(cluster: kubectl.Cluster) -> None:
    with pytest.raises(kubectl.KubectlError, match="--timeout=2m: write seconds, such as 90s"):
        kubectl.wait(cluster, ["pod/a"], {"for": "condition=Ready", "timeout": "2m"})


def test_output_waits_for_a_reader_whose_pipe_does_not_block() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    output = b"x" * 1_000_000  # more than a pipe holds

    def copy() -> None:
        with os.fdopen(writer, "wb"):
            kubectl.write(writer, output)

    copying = threading.Thread(target=copy)
    copying.start()
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == output
    copying.join()


def test_output_that_cannot_be_written_is_not_blamed_on_the_api_server() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(kubectl.KubectlError, match="cannot write the output of the command: Broken pipe"):
        kubectl.write(writer, b"x")
    os.close(writer)
