"""Who has a port of this machine."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from trainwright.cluster.node.pods.pod_recorder import describe_holder

LISTEN = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_a_process_of_the_machine_is_named_without_its_arguments(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = describe_holder(server.getsockname()[1], "default", tmp_path)
    assert text.startswith(f"process {os.getpid()} (")
    assert " of pod " not in text
    assert "--" not in text


def test_a_process_of_a_pod_is_named_to_users_of_its_namespace_alone(tmp_path: Path) -> None:
    """The process of the test is the supervisor of the pod."""
    (tmp_path / "uid").mkdir()
    (tmp_path / "uid/supervisor.json").write_text(json.dumps({"pid": os.getpid()}))
    (tmp_path / "uid/pod.json").write_text(json.dumps({"namespace": "default", "name": "digits-master-0"}))
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        same, other = (describe_holder(port, namespace, tmp_path) for namespace in ("default", "other"))
        process.communicate("")
    assert same == f"process {process.pid} of pod digits-master-0"
    assert other == "a pod of another namespace"


def test_a_holder_that_has_ended_is_not_guessed(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert describe_holder(port, "default", tmp_path) == "a process that has ended meanwhile"
