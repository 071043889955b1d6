"""Which plugins a write passes, on values; what they decide is tested with each of them."""

import pytest

from tests.cluster.apiserver.access.test_certificate_requests import certificate_request
from tests.support.cluster.object_stores import put, store_with
from tests.support.objects.manifests import config_map, pod
from tests.support.objects.widgets import definition, widget
from trainwright.cluster.apiserver.access.access_control import AccessControl
from trainwright.cluster.apiserver.access.users import ADMIN, UserInfo
from trainwright.cluster.apiserver.admission.plugin_chain import PluginChain
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.objects import Object
from trainwright.objects.node_annotations import DIRECTORY
from trainwright.objects.resources import (
    CERTIFICATE_SIGNING_REQUESTS,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    LIMIT_RANGES,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)

TYPES = Registry()
ANN = UserInfo("ann")
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
NAMESPACE: tuple[Resource, Object] = (NAMESPACES, {"metadata": {"name": "default"}})


def plugins(store: ObjectStore, *, admits_accounts: bool = False) -> PluginChain:
    return PluginChain(store, AccessControl(store, "token"), admits_accounts=admits_accounts)


async def in_namespace(resource: Resource, name: str, spec: Object) -> PluginChain:
    """Of a cluster with this object in the namespace `default`."""
    metadata = {"name": name, "namespace": "default"}
    return plugins(await store_with(NAMESPACE, (resource, {"metadata": metadata, "spec": spec})))


async def test_namespace_must_exist_and_not_terminate() -> None:
    store = await store_with()
    with pytest.raises(StatusError, match='namespaces "default" not found'):
        plugins(store).admit_create(TYPES.of(CONFIG_MAPS), "default", config_map("c"))

    await put(store, NAMESPACES, {"metadata": {"name": "default", **DELETED}})
    with pytest.raises(StatusError) as failure:
        plugins(store).admit_create(TYPES.of(CONFIG_MAPS), "default", config_map("c"))
    assert failure.value.message == (
        'configmaps "c" is forbidden: unable to create new content in namespace default because it is being terminated'
    )
    assert (failure.value.details or {})["causes"][0]["reason"] == "NamespaceTerminating"


async def test_custom_resource_definition_must_not_terminate() -> None:
    crd = definition()
    TYPES.of(CUSTOM_RESOURCE_DEFINITIONS).strategy.set_defaults(crd)
    registry = Registry()
    registry.install(crd)
    (kind, *_) = registry.of_crd(crd["metadata"]["name"])
    store = await store_with(NAMESPACE, (CUSTOM_RESOURCE_DEFINITIONS, crd))
    assert plugins(store).admit_create(kind, "default", widget("w")) == []

    await put(store, CUSTOM_RESOURCE_DEFINITIONS, crd | {"metadata": crd["metadata"] | DELETED})
    with pytest.raises(StatusError, match="create not allowed while custom resource definition is terminating"):
        plugins(store).admit_create(kind, "default", widget("w"))


async def test_new_pod_gets_priority_and_tolerations() -> None:
    body = pod()
    assert plugins(await store_with(NAMESPACE)).admit_create(TYPES.of(PODS), "default", body) == []
    assert body["spec"]["priority"] == 0
    assert [toleration["key"] for toleration in body["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]


async def test_priority_class_cannot_be_or_become_a_second_default() -> None:
    first: Object = {"metadata": {"name": "first"}, "value": 1, "globalDefault": True}
    chain = plugins(await store_with((PRIORITY_CLASSES, first)))
    kind, second = TYPES.of(PRIORITY_CLASSES), first | {"metadata": {"name": "second"}}
    with pytest.raises(StatusError, match="already marked as default"):
        chain.admit_create(kind, "", second)
    with pytest.raises(StatusError, match="already marked as default"):
        chain.admit_update(ADMIN, kind, "", second, second | {"globalDefault": False}, "")
    assert chain.admit_update(ADMIN, kind, "", first, first, "") == []


async def test_new_objects_are_within_limits_and_quotas() -> None:
    limited = await in_namespace(LIMIT_RANGES, "l", {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]})
    with pytest.raises(StatusError, match="maximum cpu usage per Pod is 1"):
        limited.admit_create(TYPES.of(PODS), "default", pod())

    counted = await in_namespace(RESOURCE_QUOTAS, "q", {"hard": {"configmaps": "0"}})
    with pytest.raises(StatusError, match="exceeded quota: q"):
        counted.admit_create(TYPES.of(CONFIG_MAPS), "default", config_map("c"))


async def test_quotas_count_updates_of_the_object_itself() -> None:
    chain = await in_namespace(RESOURCE_QUOTAS, "q", {"hard": {"pods": "0"}, "scopes": ["Terminating"]})
    ending = pod(spec={"activeDeadlineSeconds": 60})
    with pytest.raises(StatusError, match="exceeded quota: q"):
        chain.admit_update(ADMIN, TYPES.of(PODS), "default", ending, pod(), "")
    assert chain.admit_update(ADMIN, TYPES.of(PODS), "default", ending, pod(), "status") == []


async def test_machine_annotations_are_checked_except_in_a_scale() -> None:
    chain = plugins(await store_with(NAMESPACE))
    opened = config_map("c")
    opened["metadata"]["annotations"] = {DIRECTORY: "/root"}
    kind = TYPES.of(CONFIG_MAPS)

    with pytest.raises(StatusError, match="which is for the machine's owner"):
        chain.complete(ANN, kind, "default", opened)
    with pytest.raises(StatusError, match="which is for the machine's owner"):
        chain.admit_update(ANN, kind, "default", opened, config_map("c"), "")
    assert chain.admit_update(ANN, kind, "default", opened, config_map("c"), "scale") == []


async def test_status_of_a_certificate_request_needs_the_permission_to_sign() -> None:
    chain = plugins(await store_with())
    kind = TYPES.of(CERTIFICATE_SIGNING_REQUESTS)
    old: Object = {"metadata": {"name": "r"}, "spec": {"signerName": "example.com/mine"}}
    new = old | {"status": {"certificate": "eA=="}}

    with pytest.raises(StatusError, match="user not permitted to sign"):
        chain.admit_update(ANN, kind, "", new, old, "status")
    assert chain.admit_update(ADMIN, kind, "", new, old, "status") == []


async def test_new_certificate_request_is_for_no_administrator() -> None:
    kind, chain = TYPES.of(CERTIFICATE_SIGNING_REQUESTS), plugins(await store_with())
    chain.complete(ADMIN, kind, "", certificate_request("r", "team"))
    with pytest.raises(StatusError, match="with system:masters group is not allowed"):
        chain.complete(ADMIN, kind, "", certificate_request("r", "system:masters"))


async def test_new_secret_of_an_account_gets_its_token() -> None:
    store = await store_with((SERVICE_ACCOUNTS, {"metadata": {"name": "robot", "namespace": "default"}}))
    metadata = {"name": "s", "namespace": "default", "annotations": {"kubernetes.io/service-account.name": "robot"}}
    secret: Object = {"metadata": metadata, "type": "kubernetes.io/service-account-token"}

    plugins(store).complete(ADMIN, TYPES.of(SECRETS), "default", secret)

    assert set(secret["data"]) == {"ca.crt", "namespace", "token"}


async def test_accounts_are_admitted_where_controllers_create_them() -> None:
    store = await store_with(NAMESPACE)
    body = pod(spec={"serviceAccountName": "robot"})

    plugins(store).complete(ADMIN, TYPES.of(PODS), "default", body)
    with pytest.raises(StatusError, match="error looking up service account default/robot"):
        plugins(store, admits_accounts=True).complete(ADMIN, TYPES.of(PODS), "default", body)


async def test_pods_wait_for_an_account_where_controllers_create_them() -> None:
    for admits_accounts, resource in ((False, PODS), (True, CONFIG_MAPS), (True, PODS)):
        # There is no namespace, so no account will come and there is nothing to wait for.
        chain = plugins(await store_with(), admits_accounts=admits_accounts)
        await chain.wait(TYPES.of(resource), "default")


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
async def test_namespaces_of_the_system_stay(name: str) -> None:
    chain = plugins(await store_with())
    chain.admit_delete(TYPES.of(NAMESPACES), "mine")
    chain.admit_delete(TYPES.of(CONFIG_MAPS), name)
    with pytest.raises(StatusError, match="this namespace may not be deleted"):
        chain.admit_delete(TYPES.of(NAMESPACES), name)
