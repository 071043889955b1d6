"""Service accounts on values: a pod runs as an account that exists and gets its token."""

import asyncio
from typing import Any

import pytest

from tests.support.cluster.object_stores import put, store_with
from tests.support.objects.manifests import pod
from trainwright.cluster.apiserver.admission.plugins.service_account import admit_pod, wait_for_default_account
from trainwright.cluster.apiserver.errors import StatusError
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.objects import Object
from trainwright.objects.kinds.pods import MIRROR
from trainwright.objects.resources import NAMESPACES, SERVICE_ACCOUNTS

PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
ACTIVE: Object = {"metadata": {"name": "default"}}
TERMINATING: Object = {"metadata": {"name": "default", "deletionTimestamp": "2026-01-01T00:00:00Z"}}


def account(**fields: Any) -> Object:
    return {"metadata": {"name": "default", "namespace": "default"}, **fields}


async def cluster(namespace: Object = ACTIVE, **fields: Any) -> ObjectStore:
    return await store_with((NAMESPACES, namespace), (SERVICE_ACCOUNTS, account(**fields)))


def admitted(store: ObjectStore, **spec: Any) -> Object:
    body = pod(spec={"serviceAccountName": "default", **spec})
    admit_pod(store, body, "default")
    found: Object = body["spec"]
    return found


async def test_every_container_gets_the_token() -> None:
    spec = admitted(await cluster(), initContainers=[{"name": "first"}], volumes=[{"name": "own", "emptyDir": {}}])

    own, token = spec["volumes"]
    assert own["name"] == "own"
    sources = token["projected"]["sources"]
    assert [next(iter(source)) for source in sources] == ["serviceAccountToken", "configMap", "downwardAPI"]
    for container in (*spec["containers"], *spec["initContainers"]):
        assert container["volumeMounts"] == [{"name": token["name"], "readOnly": True, "mountPath": PATH}]


async def test_volume_of_a_copied_pod_is_used_again() -> None:
    volumes = [{"name": "kube-api-access-x", "projected": {}}]
    spec = admitted(await cluster(), volumes=volumes)
    assert spec["volumes"] == volumes
    assert spec["containers"][0]["volumeMounts"][0]["name"] == "kube-api-access-x"


async def test_mounts_of_the_pod_itself_stay() -> None:
    mounts = [{"name": "mine", "mountPath": PATH}]
    spec = admitted(await cluster(), containers=[{"name": "c", "volumeMounts": mounts}])
    assert (spec["containers"][0]["volumeMounts"], "volumes" in spec) == (mounts, False)


@pytest.mark.parametrize(
    ("of_pod", "of_account", "mounted"),
    [(None, None, True), (None, False, False), (True, False, True), (False, True, False)],
)
async def test_pod_decides_before_its_account_whether_it_gets_a_token(
    of_pod: bool | None, of_account: bool | None, mounted: bool
) -> None:
    store = await cluster(automountServiceAccountToken=of_account)
    assert ("volumes" in admitted(store, automountServiceAccountToken=of_pod)) is mounted


@pytest.mark.parametrize(("own", "expected"), [([], [{"name": "registry"}]), ([{"name": "mine"}], [{"name": "mine"}])])
async def test_pod_gets_the_pull_secrets_of_its_account_unless_it_has_its_own(
    own: list[Object], expected: list[Object]
) -> None:
    store = await cluster(imagePullSecrets=[{"name": "registry"}])
    assert admitted(store, imagePullSecrets=own)["imagePullSecrets"] == expected


async def test_account_must_exist() -> None:
    with pytest.raises(StatusError) as failure:
        admitted(await cluster(), serviceAccountName="robot")
    assert failure.value.message == (
        'pods "p" is forbidden: error looking up service account default/robot: serviceaccount "robot" not found'
    )


async def test_mirror_pods_and_pods_that_the_namespace_refuses_are_left() -> None:
    mirror = pod(spec={"serviceAccountName": "robot"})
    mirror["metadata"]["annotations"] = {MIRROR: "x"}
    admit_pod(await cluster(), mirror, "default")
    assert "volumes" not in mirror["spec"]
    assert "volumes" not in admitted(await cluster(TERMINATING))
    assert "volumes" not in admitted(await store_with())


async def test_pod_waits_for_the_account_of_a_new_namespace() -> None:
    store = await store_with((NAMESPACES, ACTIVE))
    waiting = asyncio.create_task(wait_for_default_account(store, "default"))
    await asyncio.sleep(0)
    assert not waiting.done()

    await put(store, SERVICE_ACCOUNTS, account())

    await asyncio.wait_for(waiting, 10)


async def test_pod_does_not_wait_where_no_account_will_be() -> None:
    for store in (await store_with((NAMESPACES, TERMINATING)), await store_with()):
        await asyncio.wait_for(wait_for_default_account(store, "default"), 10)


async def test_pod_waits_a_moment_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)

    await wait_for_default_account(await store_with((NAMESPACES, ACTIVE)), "default")

    assert sum(pauses) == pytest.approx(1)
