"""Every pod has its own ports, as on any cluster: what users see of it."""

import http.client
import re
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import trainwright
from tests.support.cluster.embedded_cluster import up_command
from tests.support.commands.kubectl import Commands
from tests.support.waiting import wait_until

PORT = 8000
SOURCE = Path(trainwright.__file__).parents[1]


def server(version: str) -> str:
    """A program that listens on all addresses; it ends when the requests that it has accepted are answered."""
    return f"""
import http.server, os, signal, socketserver, threading
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(("{version} " + os.environ["HOSTNAME"]).encode())
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer(("0.0.0.0", {PORT}), Handler)
server.daemon_threads = False
stop = lambda *_: threading.Thread(target=server.shutdown).start()
signal.signal(signal.SIGTERM, stop)
server.serve_forever()
server.server_close()
"""


def deployment(version: str, replicas: int = 2) -> list[dict[str, Any]]:
    container = {
        "name": "web",
        "image": "trainwright/host",
        "command": ["python", "-c", server(version)],
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1},
        # As on any cluster: time for the proxies to learn that the pod terminates.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
    }
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": PORT}]},
        },
    ]


def get(address: str) -> str:
    connection = http.client.HTTPConnection(address, PORT, timeout=30)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


class Requests:
    """Asks the Service again and again; counts what fails."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stop = threading.Event()
        self.answers: list[str] = []
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Requests":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            try:
                self.answers.append(get(self._address))
            except OSError as error:
                self.failures.append(str(error))


@pytest.mark.parametrize("sandbox", ["overlay", pytest.param("plain", marks=pytest.mark.thorough)])
def test_a_deployment_on_one_port_is_updated_without_a_failed_request(
    sandbox: str, tmp_path: Path, kubectl_binary: Path
) -> None:
    with up_command(tmp_path, "--sandbox", sandbox) as up:
        commands = Commands(up, kubectl_binary)
        commands.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(deployment("first")))
        commands.kubectl("rollout", "status", "deployment/web", "--timeout=100s")
        address = commands.get("service", "web")["spec"]["clusterIP"]
        pods = {pod["metadata"]["name"] for pod in commands.get("pods", "-l", "app=web")["items"]}
        assert {get(address) for _ in range(20)} == {f"first {name}" for name in pods}

        with Requests(address) as requests:
            commands.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(deployment("second")))
            commands.kubectl("rollout", "status", "deployment/web", "--timeout=100s")
            count = len(requests.answers)
            wait_until(lambda: len(requests.answers) > count + 5)

        assert requests.failures == []
        assert requests.answers[0].startswith("first ")
        assert requests.answers[-1].startswith("second ")


def test_two_clusters_have_the_same_ports_at_other_addresses(tmp_path: Path, kubectl_binary: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with up_command(tmp_path / "one") as one, up_command(tmp_path / "two") as two:
        answers = []
        for number, up in enumerate((one, two)):
            commands = Commands(up, kubectl_binary)
            commands.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(deployment(str(number), replicas=1)))
            commands.kubectl("rollout", "status", "deployment/web", "--timeout=100s")
            [pod] = commands.get("pods", "-l", "app=web")["items"]
            answers.append((pod["status"]["podIP"], get(pod["status"]["podIP"])))
        assert [text.split()[0] for _, text in answers] == ["0", "1"]
        ranges = {address.rsplit(".", 2)[0] for address, _ in answers}
        assert len(ranges) == 2


def test_commands_of_kubectl_exec_reach_the_program_of_their_pod(commands: Commands) -> None:
    commands.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(deployment("own", replicas=2)))
    commands.kubectl("rollout", "status", "deployment/web", "--timeout=100s")
    program = f"import urllib.request; print(urllib.request.urlopen('http://localhost:{PORT}').read().decode())"
    for pod in commands.get("pods", "-l", "app=web")["items"]:
        name = pod["metadata"]["name"]
        assert commands.kubectl("exec", name, "--", "python", "-c", program).strip() == f"own {name}"
        taken = f"import socket; socket.create_server(('', {PORT}))"
        assert "Address already in use" in commands.refused_kubectl("exec", name, "--", "python", "-c", taken)


def test_a_port_of_the_machine_that_a_pod_wants_is_an_event_with_its_holder(commands: Commands) -> None:
    with socket.create_server(("", 0)) as holder:  # on all addresses
        port = holder.getsockname()[1]
        program = f"import socket; socket.create_server(('', {port}))"
        commands.kubectl(
            "run", "web", "--image=trainwright/host", "--restart=Never", "--command", "--", "python", "-c", program
        )
        commands.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/web", "--timeout=100s")

        def messages() -> list[str]:
            events = commands.get("events", "--field-selector", "involvedObject.name=web,reason=PortInUse")["items"]
            return [event["message"] for event in events]

        wait_until(messages)
        [text] = messages()
    assert re.fullmatch(rf"port {port} is in use by process \d+ \(.+\); stop it, .*", text)


def test_a_pod_with_hostnetwork_has_the_ports_of_the_machine(commands: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    program = f"import socket; server = socket.create_server(('127.0.0.1', {port})); server.accept()"
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {
            "hostNetwork": True,
            "restartPolicy": "Never",
            "containers": [{"name": "web", "image": "trainwright/host", "command": ["python", "-c", program]}],
        },
    }
    commands.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(pod))
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
    commands.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/web", "--timeout=100s")
    assert commands.get("pod", "web")["status"]["podIP"] == "127.0.0.1"


def test_a_cluster_in_a_pod_says_that_its_pods_have_the_ports_of_the_machine(
    commands: Commands, tmp_path: Path
) -> None:
    """The kernel allows one listener of system calls for a process: the supervisor of the outer pod has it."""
    inner = f"{sys.executable} -m trainwright"
    script = f"""
    export HOME={tmp_path}/inner PYTHONPATH={SOURCE}
    mkdir $HOME && cd $HOME
    {inner} up --detach --data-dir data --kubeconfig config || exit 1
    {inner} status --data-dir data
    {inner} down --data-dir data
    """
    spec = {
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "main",
                "image": "trainwright/host",
                "command": ["bash", "-c", script],
                "volumeMounts": [
                    {"name": "directory", "mountPath": str(tmp_path)},
                    {"name": "source", "mountPath": str(SOURCE)},
                ],
            }
        ],
        "volumes": [
            {"name": "directory", "hostPath": {"path": str(tmp_path)}},
            {"name": "source", "hostPath": {"path": str(SOURCE)}},
        ],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "outer"}, "spec": spec}
    commands.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(pod))
    commands.kubectl(
        "wait", "--for=jsonpath={.status.containerStatuses[0].state.terminated}", "pod/outer", "--timeout=100s"
    )
    assert "pods have the ports of this machine: cannot answer system calls" in commands.kubectl("logs", "outer")
