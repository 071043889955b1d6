"""The endpoints controller and those of a real control plane that it stands for."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controllers.conftest import ControllerCluster
from tests.support.kubernetes.controlplane import CONTROLLER_MANAGER_FLAGS, Daemon, binaries
from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.resources import ENDPOINT_SLICES, ENDPOINTS, NODES, PODS, SERVICES

CONTROLLERS = "endpoints-controller,endpointslice-controller,endpointslice-mirroring-controller"


@pytest.fixture
def cluster(cluster: ControllerCluster, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControllerCluster]:
    """The real control plane of the tests does not run these controllers."""
    if cluster.embedded:
        yield cluster
        return
    kubeconfig = request.getfixturevalue("control_plane").kubeconfig
    flags = [f"--kubeconfig={kubeconfig}", f"--controllers={CONTROLLERS}", *CONTROLLER_MANAGER_FLAGS]
    daemon = Daemon(binaries() / "kube-controller-manager", *flags, log=tmp_path / "controllers.log")
    yield cluster
    daemon.close()


@pytest.fixture
async def web(cluster: ControllerCluster) -> AsyncIterator[ControllerCluster]:
    """With a Service `web`, and the node that its pods are on."""
    await cluster.client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node(cluster)}})
    spec = {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": "http"}]}
    await create(cluster, SERVICES, "web", spec=spec)
    yield cluster
    await cluster.client.delete(NODES, node(cluster))


def node(cluster: ControllerCluster) -> str:
    return f"node-{cluster.namespace}"


async def create(cluster: ControllerCluster, resource: Any, name: str, **fields: Any) -> Object:
    metadata = {"name": name, "namespace": cluster.namespace} | fields.pop("metadata", {})
    obj = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}
    return await cluster.client.create(resource, obj)


async def run_pod(cluster: ControllerCluster, name: str, address: str, *, ready: bool) -> None:
    ports = [{"name": "http", "containerPort": 8080}]
    containers = [{"name": "c", "image": "i", "ports": ports}]
    labels = {"labels": {"app": "web"}}
    await create(cluster, PODS, name, metadata=labels, spec={"containers": containers, "nodeName": node(cluster)})
    await set_ready(cluster, name, ready=ready, address=address)


async def set_ready(cluster: ControllerCluster, name: str, *, ready: bool, address: str) -> None:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": [condition]}
    await cluster.client.patch(PODS, name, {"status": status}, namespace=cluster.namespace, subresource="status")


async def subsets(cluster: ControllerCluster, name: str = "web") -> list[Object]:
    found = (await cluster.client.list(ENDPOINTS, namespace=cluster.namespace)).items
    return [
        {
            key: [one.get("ip") or one.get("port") for one in subset.get(key, [])]
            for key in ("addresses", "notReadyAddresses", "ports")
            if subset.get(key)
        }
        for one in found
        if one["metadata"]["name"] == name
        for subset in one.get("subsets") or []
    ]


async def slices(cluster: ControllerCluster, name: str = "web") -> list[Object]:
    selector = f"kubernetes.io/service-name={name}"
    return (await cluster.client.list(ENDPOINT_SLICES, namespace=cluster.namespace, label_selector=selector)).items


async def sliced(cluster: ControllerCluster, name: str = "web") -> list[tuple[str, bool]]:
    return sorted(
        (endpoint["addresses"][0], endpoint["conditions"]["ready"])
        for one in await slices(cluster, name)
        for endpoint in one.get("endpoints") or ()
    )


async def test_endpoints_follow_the_readiness_of_pods(web: ControllerCluster) -> None:
    await run_pod(web, "a", "10.1.2.3", ready=True)
    await run_pod(web, "b", "10.1.2.4", ready=False)

    async def both() -> bool:
        expected = {"addresses": ["10.1.2.3"], "notReadyAddresses": ["10.1.2.4"], "ports": [8080]}
        in_slices = [("10.1.2.3", True), ("10.1.2.4", False)]
        return await subsets(web) == [expected] and await sliced(web) == in_slices

    await eventually(both, bool)
    await set_ready(web, "b", ready=True, address="10.1.2.4")
    await web.client.delete(PODS, "a", namespace=web.namespace, grace_period_seconds=0)

    async def replaced() -> bool:
        shown = await subsets(web)
        return shown == [{"addresses": ["10.1.2.4"], "ports": [8080]}] and await sliced(web) == [("10.1.2.4", True)]

    await eventually(replaced, bool)


async def test_objects_have_the_labels_and_owners_of_the_real_ones(web: ControllerCluster) -> None:
    await run_pod(web, "a", "10.1.2.3", ready=True)

    async def shown() -> bool:
        return bool(await subsets(web)) and bool(await sliced(web))

    await eventually(shown, bool)
    (one,) = await slices(web)
    assert one["metadata"]["labels"] == {
        "kubernetes.io/service-name": "web",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
    }
    owner = one["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Service", "web", True)
    endpoint = one["endpoints"][0]
    assert endpoint["targetRef"].keys() == {"kind", "namespace", "name", "uid"}
    assert (endpoint["nodeName"], endpoint["conditions"]) == (
        node(web), {"ready": True, "serving": True, "terminating": False},
    )  # fmt: skip
    assert one["ports"] == [{"name": "", "port": 8080, "protocol": "TCP"}]
    endpoints = await web.client.get(ENDPOINTS, "web", namespace=web.namespace)
    assert endpoints["metadata"]["labels"] == {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}


async def test_manual_endpoints_of_a_service_without_selector_are_mirrored(cluster: ControllerCluster) -> None:
    await create(cluster, SERVICES, "db", spec={"ports": [{"port": 5432}]})
    manual = [{"addresses": [{"ip": "10.1.2.9"}], "ports": [{"port": 5432}]}]
    await create(cluster, ENDPOINTS, "db", subsets=manual)

    async def mirrored() -> bool:
        return await sliced(cluster, "db") == [("10.1.2.9", True)]

    await eventually(mirrored, bool)
    (one,) = await slices(cluster, "db")
    manager = one["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"]
    assert manager == "endpointslicemirroring-controller.k8s.io"
    await cluster.client.delete(ENDPOINTS, "db", namespace=cluster.namespace)

    async def gone() -> bool:
        return not await slices(cluster, "db")

    await eventually(gone, bool)


async def test_a_deleted_service_takes_both_along(web: ControllerCluster) -> None:
    await run_pod(web, "a", "10.1.2.3", ready=True)

    async def shown() -> bool:
        return bool(await subsets(web)) and bool(await sliced(web))

    await eventually(shown, bool)
    await web.client.delete(SERVICES, "web", namespace=web.namespace)

    async def gone() -> bool:
        return not await subsets(web) and not await slices(web)

    await eventually(gone, bool)


async def test_the_service_kubernetes_comes_back(embedded: ControllerCluster) -> None:
    client: Client = embedded.client

    async def there() -> bool:
        found = [
            one["metadata"]["name"]
            for resource in (SERVICES, ENDPOINTS, ENDPOINT_SLICES)
            for one in (await client.list(resource, namespace="default")).items
        ]
        return found.count("kubernetes") == 3

    await eventually(there, bool)
    before = await client.get(SERVICES, "kubernetes", namespace="default")
    for resource in (SERVICES, ENDPOINT_SLICES):
        await client.delete(resource, "kubernetes", namespace="default")

    await eventually(there, bool)
    after = await client.get(SERVICES, "kubernetes", namespace="default")
    assert after["spec"] == before["spec"]


async def test_endpoints_that_were_written_while_their_service_was_deleted_are_deleted(
    embedded: ControllerCluster,
) -> None:
    labels = {"labels": {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}}
    await create(embedded, ENDPOINTS, "late", metadata=labels)
    await create(embedded, ENDPOINTS, "manual")

    async def names() -> list[str]:
        return [one["metadata"]["name"] for one in (await embedded.client.list(ENDPOINTS, namespace="default")).items]

    assert "manual" in await eventually(names, lambda found: "late" not in found)
