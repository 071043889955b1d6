"""Client libraries in a pod find the API server, its CA and their token where they look for them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.embedded_cluster import embedded_cluster
from tests.support.kubernetes.controlplane import binaries
from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.node_annotations import DIRECTORY
from trainwright.objects.resources import PODS, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS, Resource

REPOSITORY = Path(__file__).parents[2]
OUR_CLIENT = """
import asyncio
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.kubeconfig import in_cluster_config
from trainwright.objects.resources import PODS

async def main():
    async with Client(in_cluster_config()) as client:
        for pod in (await client.list(PODS, namespace=client.config.namespace)).items:
            print("pod/" + pod["metadata"]["name"])

asyncio.run(main())
"""


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    async with embedded_cluster(tmp_path / "data") as cluster, Client(cluster.config) as found:
        yield found


async def make(client: Client, resource: Resource, name: str, **fields: Any) -> Object:
    metadata = {"name": name, "namespace": "default", **fields.pop("metadata", {})}
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}
    return await client.create(resource, body)


def volume() -> Object:
    """As ServiceAccount admission adds it."""
    namespace = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    sources: list[Object] = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": "kube-api-access-own", "projected": {"sources": sources}}


@pytest.mark.parametrize("library", ["client-go", "trainwright"])
async def test_a_pod_lists_the_pods_of_its_namespace(client: Client, library: str) -> None:
    await make(client, SERVICE_ACCOUNTS, "reader")
    await make(client, ROLES, "reader", rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}])
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    subjects = [{"kind": "ServiceAccount", "name": "reader", "namespace": "default"}]
    await make(client, ROLE_BINDINGS, "reader", roleRef=role, subjects=subjects)
    command = {
        "client-go": [str(binaries() / "kubectl"), "get", "pods", "--output=name"],
        "trainwright": ["python", "-c", OUR_CLIENT],
    }[library]
    mount = {"name": "kube-api-access-own", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    container = {"name": "main", "image": "trainwright/host", "command": command, "volumeMounts": [mount]}
    spec = {"restartPolicy": "Never", "serviceAccountName": "reader", "containers": [container], "volumes": [volume()]}
    await make(client, PODS, "p", spec=spec, metadata={"annotations": {DIRECTORY: str(REPOSITORY)}})
    pod = await eventually(
        lambda: client.get(PODS, "p", namespace="default"),
        lambda pod: (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"},
    )
    log = b"".join([line async for line in client.logs("p", namespace="default")]).decode()
    assert (pod["status"]["phase"], log) == ("Succeeded", "pod/p\n")
