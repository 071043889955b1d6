"""Who has a port of this machine."""

import os
import socket
import subprocess
import sys

from trainwright.cluster.node.pods.port_holders import describe_holder

LISTEN = """
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
sys.stdin.read()
"""


def test_a_process_of_the_machine_is_named_without_its_arguments() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = describe_holder(server.getsockname()[1])
    assert text.startswith(f"process {os.getpid()} (")
    assert " of pod " not in text
    assert "--" not in text


def test_a_process_of_a_pod_is_named_with_its_pod() -> None:
    environment = {**os.environ, "HOSTNAME": "digits-master-0", "GLOO_SOCKET_IFNAME": "lo"}
    with subprocess.Popen(
        [sys.executable, "-c", LISTEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        text = describe_holder(int(process.stdout.readline()))
        process.communicate("")
    assert text.startswith(f"process {process.pid} (")
    assert text.endswith(" of pod digits-master-0)")


def test_a_holder_that_has_ended_is_not_guessed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert describe_holder(port) == "a process that has ended meanwhile"
