"""exec, attach and port-forward by the Python client `kubernetes`, as a program of its own."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.support.cluster.embedded_cluster import embedded_cluster
from tests.support.waiting import eventually
from trainwright.cluster.datadir import DataDir
from trainwright.kube.client.async_client import Client
from trainwright.objects.node_annotations import HOST_IMAGE
from trainwright.objects.resources import PODS

POD = """
import socket, sys
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
connection, _ = listener.accept()
connection.sendall(b"you said " + connection.recv(100))
connection.close()
print("read", sys.stdin.readline(), flush=True)
"""

PROGRAM = """
import json, sys
from kubernetes import client, config, stream

config.load_kube_config(sys.argv[1])
api = client.CoreV1Api()
found = {}

def run(call, stdin=None, **options):
    session = stream.stream(call, "p", "default", stdin=stdin is not None, stdout=True, stderr=True, tty=False,
                            _preload_content=False, **options)
    if stdin is not None:
        session.write_stdin(stdin)
    session.run_forever(timeout=120)
    return session.read_stdout(), session.read_stderr(), session.returncode

execute = api.connect_get_namespaced_pod_exec
found["exec"] = run(execute, command=["sh", "-c", "echo out; echo err >&2; exit 7"])
found["stdin"] = run(execute, command=["sh"], stdin="echo one; exit\\n")
found["whole"] = stream.stream(execute, "p", "default", command=["echo", "whole"], stdout=True, stderr=True)
try:
    stream.stream(execute, "p", "default", container="other", command=["true"], stdout=True)
except client.ApiException as error:
    found["error"] = str(error)
port = int(api.read_namespaced_pod_log("p", "default").split()[0])
forward = stream.portforward(api.connect_get_namespaced_pod_portforward, "p", "default", ports=str(port))
connection = forward.socket(port)
connection.setblocking(True)
connection.sendall(b"hello")
answer = b""
while piece := connection.recv(100):
    answer += piece
found["forward"] = [answer.decode(), forward.error(port)]
found["attach"] = run(api.connect_get_namespaced_pod_attach, stdin="line\\n")
print(json.dumps(found))
"""


async def test_exec_attach_and_port_forward(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    async with embedded_cluster(directory, port=0) as running, Client(running.config) as client:
        main = {"name": "main", "image": HOST_IMAGE, "command": ["python3", "-c", POD], "stdin": True}
        metadata = {"name": "p", "namespace": "default"}
        spec = {"containers": [main], "restartPolicy": "Never"}
        await client.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        await eventually(
            lambda: client.get(PODS, "p", namespace="default"), lambda pod: pod["status"].get("phase") == "Running"
        )
        found = await _run(DataDir(directory).kubeconfig)

    assert found["exec"] == ["out\n", "err\n", 7]
    assert found["stdin"] == ["one\n", "", 0]
    assert found["whole"] == "whole\n"
    assert "container other is not valid for pod p" in found["error"]
    assert found["forward"] == ["you said hello", None]
    assert "read line" in found["attach"][0]


async def _run(kubeconfig: Path) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(kubeconfig), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    found: dict[str, Any] = json.loads(output)
    return found
