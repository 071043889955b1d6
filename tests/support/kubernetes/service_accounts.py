"""Service accounts with few permissions, for tests of what the operator does when RBAC denies it something."""

from collections.abc import Sequence
from dataclasses import replace

from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.objects import Object
from trainwright.objects.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
    Resource,
)
from trainwright.operator.setup.permissions import is_allowed

_GROUP = "rbac.authorization.k8s.io"


def rule(group: str, resources: str, verbs: str) -> Object:
    """One rule of a role; resources and verbs are separated by spaces."""
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split()}


async def account(
    client: Client, namespace: str, name: str, rules: Sequence[Object], *, own_rules: Sequence[Object] = ()
) -> ClusterConfig:
    """Creates a service account with a ClusterRole of these rules, and a Role of `own_rules` in its namespace. Returns
    a configuration with its token."""
    # Cluster-scoped objects outlive the namespace of a test, so their names include that of the namespace.
    role = f"{namespace}-{name}"
    await client.create(SERVICE_ACCOUNTS, _named("ServiceAccount", "v1", name, namespace=namespace))
    await client.create(CLUSTER_ROLES, _role("ClusterRole", role, rules))
    await client.create(CLUSTER_ROLE_BINDINGS, _binding("ClusterRole", role, name, namespace))
    if own_rules:
        await client.create(ROLES, _role("Role", name, own_rules), namespace=namespace)
        await client.create(ROLE_BINDINGS, _binding("Role", name, name, namespace), namespace=namespace)
    request = _named("TokenRequest", "authentication.k8s.io/v1", name) | {"spec": {"expirationSeconds": 3600}}
    answer = await client.create(SERVICE_ACCOUNTS, request, namespace=namespace, subresource="token")
    config = replace(client.config, token=answer["status"]["token"], token_file=None)
    await _wait_until_in_force(config, rules)
    await _wait_until_in_force(config, own_rules, namespace)
    return config


async def _wait_until_in_force(config: ClusterConfig, rules: Sequence[Object], namespace: str | None = None) -> None:
    """Waits until the server's authorizer has seen the roles."""
    async with Client(config) as client:
        for one in rules:
            resource = Resource(one["apiGroups"][0], "v1", one["resources"][0], "", namespaced=namespace is not None)
            await eventually(lambda: is_allowed(client, one["verbs"][0], resource, namespace), bool)  # noqa: B023 (awaited at once)


def _role(kind: str, name: str, rules: Sequence[Object]) -> Object:
    return _named(kind, f"{_GROUP}/v1", name) | {"rules": list(rules)}


def _binding(kind: str, role: str, account: str, namespace: str) -> Object:
    return _named(f"{kind}Binding", f"{_GROUP}/v1", role) | {
        "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


def _named(kind: str, api_version: str, name: str, *, namespace: str | None = None) -> Object:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
