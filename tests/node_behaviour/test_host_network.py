"""Pods with the network of the machine, and host ports of those with their own."""

import socket

from tests.node_behaviour.test_services import ASK, serve
from tests.support.node.namespace import NodeNamespace, python
from trainwright.objects import Object


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


async def answer(node: NodeNamespace, address: str, port: int) -> str:
    """What a pod receives there."""
    program = f"{ASK}\nprint(ask('{address}', {port}, ['a']))"
    await node.pod("client", python(program), restartPolicy="Never")
    return await node.output("client")


async def test_a_pod_with_the_network_of_the_machine_has_its_address_and_its_ports(node: NodeNamespace) -> None:
    port = free_port()
    declared = {"ports": [{"name": "web", "containerPort": port}]}
    await serve(node, "a", port=port, hostNetwork=True, fields=declared)
    pod: Object = await node.until_ready("a")

    assert pod["spec"]["containers"][0]["ports"] == [
        {"name": "web", "containerPort": port, "hostPort": port, "protocol": "TCP"}
    ]
    status = pod["status"]
    assert (status["podIP"], status["podIPs"]) == (status["hostIP"], [{"ip": status["hostIP"]}])
    assert await answer(node, status["hostIP"], port) == "a\n"


async def test_a_host_port_of_the_machine_reaches_the_pod(node: NodeNamespace) -> None:
    port = free_port()
    await serve(node, "a", fields={"ports": [{"name": "web", "containerPort": 17080, "hostPort": port}]})
    pod = await node.until_ready("a")
    assert pod["status"]["podIP"] != pod["status"]["hostIP"]
    assert await answer(node, pod["status"]["hostIP"], port) == "a\n"
