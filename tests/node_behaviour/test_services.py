"""Services and names: which pods get connections, what their names resolve to, and which variables pods have."""

from typing import Any

import pytest

from tests.support.node.namespace import NodeNamespace, container, python
from tests.support.waiting import eventually
from trainwright.objects import Object
from trainwright.objects.resources import ENDPOINT_SLICES, SERVICES

SERVER = """
import os, socketserver
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.sendall(os.environ["POD"].encode())
socketserver.ThreadingTCPServer.allow_reuse_address = True
socketserver.ThreadingTCPServer((os.environ["IP"], PORT), Handler).serve_forever()
"""
ASK = """
import os, socket, time
def ask(host, port, wanted, tries=150):
    for _ in range(tries):
        try:
            with socket.create_connection((host, port), timeout=5) as s:
                answer = s.recv(99).decode()
        except OSError as error:
            answer = type(error).__name__
        if answer in wanted:
            return answer
        time.sleep(0.1)
    return answer
"""
FIELDS = [
    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
]


async def serve(node: NodeNamespace, name: str, *, port: int = 17080, **spec: Any) -> Object:
    """A pod that answers with its name. It listens on its own address, so that several can run on one machine."""
    fields = {"ports": [{"name": "web", "containerPort": port}], **spec.pop("fields", {})}
    server = python(SERVER.replace("PORT", str(port)), env=FIELDS, **fields)
    return await node.pod(name, server, metadata={"labels": {"app": "server"}}, **spec)


async def service(node: NodeNamespace, name: str = "server", **spec: Any) -> Object:
    ports = [{"port": 17000, "targetPort": "web"}]
    obj = await node.make(SERVICES, name, spec={"selector": {"app": "server"}, "ports": ports, **spec})
    return dict(obj["spec"])


async def endpoints(node: NodeNamespace, name: str = "server") -> dict[str, bool]:
    """Whether each pod is ready, as the EndpointSlices say."""
    selector = f"kubernetes.io/service-name={name}"
    slices = (await node.client.list(ENDPOINT_SLICES, namespace=node.name, label_selector=selector)).items
    return {
        endpoint["targetRef"]["name"]: endpoint["conditions"]["ready"]
        for one in slices
        for endpoint in one.get("endpoints") or ()
    }


async def test_connections_to_a_service_reach_the_target_port_of_its_pod(node: NodeNamespace) -> None:
    address = (await service(node))["clusterIP"]
    await serve(node, "a")
    await node.pod("client", python(f"{ASK}\nprint(ask('{address}', 17000, ['a']))"), restartPolicy="Never")
    assert await node.output("client") == "a\n"


@pytest.mark.only("overlay", "kubelet")
@pytest.mark.parametrize("suffix", ["", ".NAMESPACE", ".NAMESPACE.svc", ".NAMESPACE.svc.cluster.local"])
async def test_a_service_is_reached_by_each_of_its_names(node: NodeNamespace, suffix: str) -> None:
    await service(node)
    await serve(node, "a")
    name = f"server{suffix.replace('NAMESPACE', node.name)}"
    await node.pod("client", python(f"{ASK}\nprint(ask('{name}', 17000, ['a']))"), restartPolicy="Never")
    assert await node.output("client") == "a\n"


async def test_all_pods_of_a_service_get_connections(node: NodeNamespace) -> None:
    address = (await service(node))["clusterIP"]
    for name in ("a", "b"):
        await serve(node, name)
    program = f"{ASK}\nfor wanted in 'abab': print(ask('{address}', 17000, [wanted]))"
    await node.pod("client", python(program), restartPolicy="Never")
    assert await node.output("client") == "a\nb\na\nb\n"


async def test_a_service_without_ready_pods_refuses_connections(node: NodeNamespace) -> None:
    address = (await service(node))["clusterIP"]
    program = f"{ASK}\nprint(ask('{address}', 17000, ['ConnectionRefusedError']))"
    await node.pod("client", python(program), restartPolicy="Never")
    assert await node.output("client") == "ConnectionRefusedError\n"


async def test_a_pod_that_is_not_ready_gets_no_connections(node: NodeNamespace) -> None:
    address = (await service(node))["clusterIP"]
    never = {"readinessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1}}
    await serve(node, "unready", fields=never)
    await serve(node, "ready")
    await node.until_ready("ready")
    program = (
        f"{ASK}\nprint(ask('{address}', 17000, ['ready']), {{ask('{address}', 17000, ['ready']) for _ in range(9)}})"
    )
    await node.pod("client", python(program), restartPolicy="Never")
    assert await node.output("client") == "ready {'ready'}\n"
    await eventually(lambda: endpoints(node), lambda found: found == {"ready": True, "unready": False})


async def test_addresses_that_are_not_ready_are_published_on_request(node: NodeNamespace) -> None:
    address = (await service(node, publishNotReadyAddresses=True))["clusterIP"]
    await serve(node, "unready", fields={"readinessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1}})
    await node.pod("client", python(f"{ASK}\nprint(ask('{address}', 17000, ['unready']))"), restartPolicy="Never")
    assert await node.output("client") == "unready\n"


@pytest.mark.only("overlay", "kubelet")
async def test_a_headless_service_resolves_to_the_address_of_its_pod(node: NodeNamespace) -> None:
    await service(node, clusterIP="None")
    pod = await serve(node, "a")
    pod = await node.until_ready(pod["metadata"]["name"])
    program = (
        "import socket, time\n"
        "for _ in range(300):\n"
        "    try:\n        print(socket.gethostbyname('server')); break\n"
        "    except OSError: time.sleep(0.1)\n"
    )
    await node.pod("client", python(program), restartPolicy="Never")
    assert await node.output("client") == f"{pod['status']['podIP']}\n"


@pytest.mark.only("overlay", "kubelet")
async def test_a_pod_with_hostname_and_subdomain_has_a_name_in_its_headless_service(node: NodeNamespace) -> None:
    await service(node, clusterIP="None")
    await serve(node, "a", hostname="first", subdomain="server")
    await node.until_ready("a")
    name = f"first.server.{node.name}.svc.cluster.local"
    await node.pod("client", python(f"{ASK}\nprint(ask('{name}', 17080, ['a']))"), restartPolicy="Never")
    assert await node.output("client") == "a\n"


async def test_manual_endpoint_slices_of_a_service_without_selector_get_connections(node: NodeNamespace) -> None:
    spec = (await node.make(SERVICES, "manual", spec={"ports": [{"port": 17000}]}))["spec"]
    await serve(node, "a")
    address = (await node.until_ready("a"))["status"]["podIP"]
    await node.make(
        ENDPOINT_SLICES,
        "manual-1",
        metadata={"labels": {"kubernetes.io/service-name": "manual"}},
        addressType="IPv4",
        endpoints=[{"addresses": [address]}],
        ports=[{"port": 17080}],
    )
    program = f"{ASK}\nprint(ask('{spec['clusterIP']}', 17000, ['a']))"
    await node.pod("client", python(program), restartPolicy="Never")
    assert await node.output("client") == "a\n"


async def test_a_pod_has_the_variables_of_services_that_exist_when_it_starts(node: NodeNamespace) -> None:
    address = (await service(node, "my-db"))["clusterIP"]
    script = 'echo "$MY_DB_SERVICE_HOST $MY_DB_SERVICE_PORT $MY_DB_PORT $MY_DB_PORT_17000_TCP_ADDR $REFERENCE"'
    env = [{"name": "REFERENCE", "value": "$(MY_DB_SERVICE_HOST)"}]
    await node.pod("p", container(script, env=env), restartPolicy="Never")
    assert await node.output("p") == f"{address} 17000 tcp://{address}:17000 {address} {address}\n"


async def test_without_service_links_only_the_api_server_has_variables(node: NodeNamespace) -> None:
    await service(node, "my-db")
    script = 'echo "${MY_DB_SERVICE_HOST-none} ${KUBERNETES_SERVICE_HOST:+some} ${KUBERNETES_SERVICE_PORT_HTTPS:+some}"'
    await node.pod("p", container(script), enableServiceLinks=False, restartPolicy="Never")
    assert await node.output("p") == "none some some\n"


async def test_the_variables_lead_to_the_api_server(node: NodeNamespace) -> None:
    program = (
        "import os, socket\n"
        "at = os.environ['KUBERNETES_SERVICE_HOST'], int(os.environ['KUBERNETES_SERVICE_PORT'])\n"
        "with socket.create_connection(at, timeout=20): print('connected')"
    )
    await node.pod("p", python(program), restartPolicy="Never")
    assert await node.output("p") == "connected\n"


@pytest.mark.only("overlay", "kubelet")
async def test_host_aliases_are_in_the_hosts_file(node: NodeNamespace) -> None:
    aliases = [{"ip": "192.0.2.7", "hostnames": ["db", "db.example"]}]
    await node.pod("p", container("cat /etc/hosts"), hostAliases=aliases, restartPolicy="Never")
    lines = [line.split() for line in (await node.output("p")).splitlines()]
    assert ["192.0.2.7", "db", "db.example"] in lines


async def test_endpoints_end_with_their_pod(node: NodeNamespace) -> None:
    await service(node)
    await serve(node, "a")
    await node.until_ready("a")
    await node.delete("a")
    await node.until_gone("a")
    address = (await node.read("server", SERVICES) or {})["spec"]["clusterIP"]
    program = f"{ASK}\nprint(ask('{address}', 17000, ['ConnectionRefusedError']))"
    await node.pod("client", python(program), restartPolicy="Never")
    assert await node.output("client") == "ConnectionRefusedError\n"
    assert await endpoints(node) == {}
