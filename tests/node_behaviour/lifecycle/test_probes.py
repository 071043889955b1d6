"""Startup, readiness and liveness probes."""

from typing import Any

import pytest

from tests.support.node.namespace import NodeNamespace, condition, container, container_status, python
from trainwright.objects import Object

MEMORY = [{"name": "state", "emptyDir": {}}]
MOUNT = [{"name": "state", "mountPath": "/state"}]

SERVER = """
import http.server, os, socketserver
class Program(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, self.headers['User-Agent'].split('/')[0], self.headers.get('X-Probe', ''))
        self.send_response(int(self.path.strip('/') or 200))
        self.end_headers()
    def log_message(self, *_):
        pass
socketserver.TCPServer.allow_reuse_address = True
http.server.HTTPServer((os.environ['ADDRESS'], PORT), Program).serve_forever()
"""
ADDRESS = [{"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]


def server(port: int, **fields: Any) -> Object:
    return python(
        SERVER.replace("PORT", str(port)), env=ADDRESS, ports=[{"name": "web", "containerPort": port}], **fields
    )


def sleeper(**fields: Any) -> Object:
    return container("trap 'exit 0' TERM; sleep 600 & wait", volumeMounts=MOUNT, **fields)


def probe(script: str = "", **fields: Any) -> Object:
    handler = {"exec": {"command": ["sh", "-c", script]}} if script else {}
    return {**handler, "periodSeconds": 1, **fields}


def is_running(pod: Object) -> bool:
    return "running" in container_status(pod).get("state", {})


async def test_a_container_is_ready_when_its_probe_succeeds(node: NodeNamespace) -> None:
    await node.pod("p", sleeper(readinessProbe=probe("test -e /state/ready")), volumes=MEMORY)
    pod = await node.until("p", is_running)
    assert container_status(pod)["ready"] is False
    unready = condition(pod, "Ready")
    assert (unready["status"], unready["reason"]) == ("False", "ContainersNotReady")
    assert unready["message"] == "containers with unready status: [main]"
    await node.exec("p", "touch", "/state/ready")
    pod = await node.until_ready("p")
    assert container_status(pod)["ready"] is True
    assert container_status(pod)["started"] is True


async def test_a_container_that_stops_being_ready_is_not_restarted(node: NodeNamespace) -> None:
    readiness = probe("test ! -e /state/busy", failureThreshold=1)
    await node.pod("p", sleeper(readinessProbe=readiness), volumes=MEMORY)
    await node.until_ready("p")
    await node.exec("p", "touch", "/state/busy")
    pod = await node.until("p", lambda pod: condition(pod, "Ready").get("status") == "False")
    assert container_status(pod)["restartCount"] == 0


async def test_the_output_of_a_failed_command_is_in_the_event(node: NodeNamespace) -> None:
    await node.pod("p", sleeper(readinessProbe=probe("echo not yet; exit 3")), volumes=MEMORY)
    event = await node.until_event("p", "Unhealthy")
    assert event["message"] == "Readiness probe failed: not yet\n"
    assert event["type"] == "Warning"
    assert event["involvedObject"]["fieldPath"] == "spec.containers{main}"


async def test_a_command_that_takes_too_long_fails(node: NodeNamespace) -> None:
    readiness = {"exec": {"command": ["sleep", "600"]}, "periodSeconds": 1, "timeoutSeconds": 1}
    await node.pod("p", sleeper(readinessProbe=readiness), volumes=MEMORY)
    event = await node.until_event("p", "Unhealthy")
    assert event["message"] == 'Readiness probe failed: command timed out: "sleep 600" timed out after 1s'


async def test_a_failed_liveness_probe_restarts_the_container(node: NodeNamespace) -> None:
    liveness = probe("exit 1", failureThreshold=2)
    await node.pod("p", sleeper(livenessProbe=liveness), volumes=MEMORY, restartPolicy="OnFailure")
    pod = await node.until("p", lambda pod: container_status(pod).get("restartCount", 0) >= 1)
    assert container_status(pod)["lastState"]["terminated"]["exitCode"] in {0, 143}
    event = await node.until_event("p", "Killing")
    assert event["message"] == "Container main failed liveness probe, will be restarted"
    event = await node.until_event("p", "Unhealthy")
    assert event["message"] == "Liveness probe failed: "


async def test_a_failed_liveness_probe_ends_a_pod_that_does_not_restart(node: NodeNamespace) -> None:
    await node.pod("p", container("exec sleep 600", livenessProbe=probe("exit 1", failureThreshold=1)))
    pod = await node.until_phase("p", "Failed")
    assert container_status(pod)["restartCount"] == 0
    event = await node.until_event("p", "Killing")
    assert event["message"] == "Stopping container main"


async def test_a_liveness_probe_has_a_grace_period_of_its_own(node: NodeNamespace) -> None:
    liveness = probe("exit 1", failureThreshold=1, terminationGracePeriodSeconds=1)
    stubborn = container("trap '' TERM; while :; do sleep 0.1; done", livenessProbe=liveness)
    await node.pod("p", stubborn, restartPolicy="Always", terminationGracePeriodSeconds=600)
    pod = await node.until("p", lambda pod: container_status(pod).get("restartCount", 0) >= 1)
    assert container_status(pod)["lastState"]["terminated"]["exitCode"] == 137
    await node.delete("p", grace_period_seconds=0)


async def test_liveness_and_readiness_wait_for_the_startup_probe(node: NodeNamespace) -> None:
    main = sleeper(
        startupProbe=probe("test -e /state/started", failureThreshold=60),
        livenessProbe=probe("test -e /state/started", failureThreshold=1),
        readinessProbe=probe("true"),
    )
    await node.pod("p", main, volumes=MEMORY, restartPolicy="Always")
    pod = await node.until("p", is_running)
    assert (container_status(pod)["started"], container_status(pod)["ready"]) == (False, False)
    await node.until_event("p", "Unhealthy")  # of the startup probe; others would restart it or make it ready
    pod = await node.until("p", is_running)
    assert (container_status(pod)["started"], container_status(pod)["ready"]) == (False, False)
    await node.exec("p", "touch", "/state/started")
    pod = await node.until_ready("p")
    assert container_status(pod)["started"] is True
    assert container_status(pod)["restartCount"] == 0


async def test_a_failed_startup_probe_restarts_the_container(node: NodeNamespace) -> None:
    startup = probe("exit 1", failureThreshold=2)
    await node.pod("p", sleeper(startupProbe=startup), volumes=MEMORY, restartPolicy="Always")
    await node.until("p", lambda pod: container_status(pod).get("restartCount", 0) >= 1)
    event = await node.until_event("p", "Killing")
    assert event["message"] == "Container main failed startup probe, will be restarted"


async def test_an_http_probe_sends_its_headers_to_a_named_port(node: NodeNamespace) -> None:
    action = {"port": "web", "path": "/204", "httpHeaders": [{"name": "X-Probe", "value": "yes"}]}
    await node.pod("p", server(18231, readinessProbe=probe(httpGet=action)))
    await node.until_ready("p")
    await node.until_log("p", "/204 kube-probe yes")


async def test_an_http_status_of_400_or_more_is_a_failure(node: NodeNamespace) -> None:
    await node.pod("p", server(18232, readinessProbe=probe(httpGet={"port": 18232, "path": "/503"})))
    event = await node.until_event("p", "Unhealthy", containing="statuscode")
    assert event["message"] == "Readiness probe failed: HTTP probe failed with statuscode: 503"


@pytest.mark.parametrize(("action", "prefix"), [("tcpSocket", ""), ("httpGet", 'Get "http://{address}/": ')])
async def test_a_refused_connection_is_a_failure(node: NodeNamespace, action: str, prefix: str) -> None:
    await node.pod("p", sleeper(readinessProbe={**probe(), action: {"port": 18233}}), volumes=MEMORY)
    event = await node.until_event("p", "Unhealthy")
    pod = await node.until("p", lambda pod: pod["status"].get("podIP"))
    address = f"{pod['status']['podIP']}:18233"
    refused = f"dial tcp {address}: connect: connection refused"
    assert event["message"] == f"Readiness probe failed: {prefix.format(address=address)}{refused}"


async def test_a_tcp_probe_succeeds_when_the_port_is_open(node: NodeNamespace) -> None:
    await node.pod("p", server(18234, readinessProbe=probe(tcpSocket={"port": "web"})))
    await node.until_ready("p")


async def test_readiness_gates_need_the_conditions_of_others(node: NodeNamespace) -> None:
    await node.pod("p", sleeper(), volumes=MEMORY, readinessGates=[{"conditionType": "example.com/fed"}])
    pod = await node.until("p", lambda pod: condition(pod, "ContainersReady").get("status") == "True")
    ready = condition(pod, "Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ReadinessGatesNotReady")
    assert ready["message"] == 'corresponding condition of pod readiness gate "example.com/fed" does not exist.'
