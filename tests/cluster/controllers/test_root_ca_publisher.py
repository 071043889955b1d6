from functools import partial

from tests.cluster.controllers.conftest import ControllerCluster
from tests.support.waiting import eventually
from trainwright.kube.client.errors import NotFound
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS, NAMESPACES, PRIORITY_CLASSES, SERVICE_ACCOUNTS, Resource

BUNDLE = "kube-root-ca.crt"


async def found(cluster: ControllerCluster, resource: Resource, name: str, namespace: str) -> Object | None:
    try:
        return await cluster.client.get(resource, name, namespace=namespace)
    except NotFound:
        return None


async def test_every_namespace_has_an_account_and_the_servers_certificate(embedded: ControllerCluster) -> None:
    await embedded.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fresh"}})
    for namespace in ("default", "kube-system", "fresh"):
        await eventually(partial(found, embedded, SERVICE_ACCOUNTS, "default", namespace), bool)
        bundle = await eventually(partial(found, embedded, CONFIG_MAPS, BUNDLE, namespace), bool)
        assert bundle is not None
        assert bundle["data"] == {"ca.crt": (embedded.client.config.ca_data or b"").decode()}
        assert "kubernetes.io/description" in bundle["metadata"]["annotations"]


async def test_deleted_account_and_changed_certificate_are_restored(embedded: ControllerCluster) -> None:
    await embedded.client.delete(SERVICE_ACCOUNTS, "default", namespace="default")
    await embedded.client.patch(CONFIG_MAPS, BUNDLE, {"data": {"ca.crt": "x"}}, namespace="default")

    await eventually(lambda: found(embedded, SERVICE_ACCOUNTS, "default", "default"), bool)
    await eventually(
        lambda: found(embedded, CONFIG_MAPS, BUNDLE, "default"),
        lambda bundle: bundle is not None and bundle["data"]["ca.crt"] != "x",
    )


async def test_system_priority_classes_exist(embedded: ControllerCluster) -> None:
    classes = {one["metadata"]["name"]: one["value"] for one in (await embedded.client.list(PRIORITY_CLASSES)).items}
    assert classes == {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}
