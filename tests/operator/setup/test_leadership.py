"""Leader election: the gate in front of the operator's client, and the permissions that a lease needs."""

from typing import Any

import pytest

from tests.support.kubernetes.service_accounts import account, rule
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Unreachable
from trainwright.kube.client.requests import Request
from trainwright.objects.resources import LEASES
from trainwright.operator.options import LeaderElectionOptions, OperatorError
from trainwright.operator.setup.leadership import Leadership, NotLeading, check_permissions

pytestmark = pytest.mark.apiserver

READ = Request("GET", "/api/v1/pods")
WRITE = Request("POST", "/api/v1/namespaces/n/pods")
REVIEW = Request("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")


async def test_only_the_leader_writes(client: Client, real_namespace: str) -> None:
    ours = Leadership(client, LeaderElectionOptions(name="lock"), namespace=real_namespace)
    ours.gate(READ)
    ours.gate(REVIEW)
    with pytest.raises(NotLeading, match="POST /api/v1/namespaces/n/pods was not sent"):
        ours.gate(WRITE)
    assert ours.role == "standby, there is no leader"

    await ours.acquire()
    ours.gate(WRITE)
    assert ours.role == "leading"

    await ours.release()
    with pytest.raises(Unreachable):  # which every caller handles
        ours.gate(WRITE)
    lease = await client.get(LEASES, "lock", namespace=real_namespace)
    assert lease["spec"]["holderIdentity"] == ""


async def test_a_leader_whose_lease_another_took_stops_leading(client: Client, real_namespace: str) -> None:
    seen: list[bool] = []
    ours = Leadership(
        client,
        LeaderElectionOptions(name="lock", lease_seconds=600, renew_seconds=300, retry_seconds=0.05),
        namespace=real_namespace,
        on_change=seen.append,
    )
    await ours.acquire()
    lease = await client.get(LEASES, "lock", namespace=real_namespace)
    thief = {**lease["spec"], "holderIdentity": "thief", "renewTime": "2026-11-15T00:00:00.000000Z"}
    await client.patch(LEASES, "lock", {"spec": thief}, namespace=real_namespace)
    await ours.lost.wait()
    with pytest.raises(NotLeading):
        ours.gate(WRITE)
    assert ours.role == "standby, the leader is thief"
    assert seen == [True, False]
    await ours.release()
    assert (await client.get(LEASES, "lock", namespace=real_namespace))["spec"]["holderIdentity"] == "thief"


async def test_a_missing_permission_is_named_with_the_rule_to_add(client: Client, real_namespace: str) -> None:
    leases = "coordination.k8s.io", "leases"
    config = await account(client, real_namespace, "reader", [rule(*leases, "get create")])
    async with Client(config) as limited:
        with pytest.raises(OperatorError) as error:
            await check_permissions(limited, real_namespace)
    assert f"not allowed to update leases.coordination.k8s.io in namespace {real_namespace}" in str(error.value)
    assert "resources [leases], verbs [get, create, update, watch]" in str(error.value)
    await check_permissions(client, real_namespace)


@pytest.mark.parametrize(
    ("options", "periods"),
    [
        ({"lease_seconds": 10, "renew_seconds": 15}, "2, 15 and 10"),
        ({"lease_seconds": 10}, "2, 10 and 10"),
        ({"renew_seconds": 2}, "2, 2 and 15"),
        ({"retry_seconds": 0}, "0, 10 and 15"),
    ],
)
def test_durations_that_allow_two_leaders_are_an_error(options: dict[str, Any], periods: str) -> None:
    with pytest.raises(OperatorError, match=f"a leader stops before another starts: not {periods} seconds"):
        LeaderElectionOptions(**options)
