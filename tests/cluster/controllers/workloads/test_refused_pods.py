"""Workloads whose pods Pod Security admission refuses, on our controllers and on kube-controller-manager."""

import re
from typing import Any

import pytest

from tests.cluster.controllers.conftest import ControllerCluster
from tests.support.objects.manifests import batch_job, pod, replica_set
from tests.support.waiting import eventually
from trainwright.kube.client.errors import Forbidden
from trainwright.objects.resources import (
    BATCH_JOBS,
    EVENTS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)

HOST_PATH: dict[str, Any] = {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]}
TEMPLATE = {"spec": {**pod()["spec"], **HOST_PATH}, "metadata": {"labels": {"app": "web"}}}
VIOLATION = 'violates PodSecurity "baseline:latest": hostPath volumes (volume "root")'


@pytest.mark.parametrize(
    ("resource", "body", "prefix"),
    [
        (REPLICA_SETS, replica_set(template=TEMPLATE), "Error creating: "),
        (
            STATEFUL_SETS,
            replica_set(template=TEMPLATE, serviceName="web") | {"kind": "StatefulSet"},
            "Create Pod web-0 in StatefulSet web failed error: ",
        ),
        (BATCH_JOBS, batch_job("web", template=HOST_PATH), "Error creating: "),
    ],
    ids=lambda value: value.kind if isinstance(value, Resource) else "",
)
async def test_the_event_of_the_workload_has_the_violation(
    cluster: ControllerCluster, resource: Resource, body: dict[str, Any], prefix: str
) -> None:
    client, namespace = cluster.client, cluster.namespace
    rule = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
    await client.patch(NAMESPACES, namespace, rule)

    async def enforced() -> bool:
        try:
            await client.create(PODS, pod("other", spec=HOST_PATH), namespace=namespace)
        except Forbidden as error:
            return "violates PodSecurity" in error.message
        await client.delete(PODS, "other", namespace=namespace, grace_period_seconds=0)
        return False

    await eventually(enforced, bool)  # the real admission sees the label with a delay
    await client.create(resource, body, namespace=namespace)

    async def messages() -> set[str]:
        found = (await client.list(EVENTS, namespace=namespace)).items
        return {one["message"] for one in found if one["reason"] == "FailedCreate" and one["type"] == "Warning"}

    expected = re.compile(rf'{re.escape(prefix)}pods "web-\w+" is forbidden: {re.escape(VIOLATION)}')
    found = await eventually(messages, bool)
    assert all(expected.fullmatch(message) for message in found), found
    assert (await client.list(PODS, namespace=namespace)).items == []
