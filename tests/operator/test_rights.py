"""An operator that may do no more than upstream's ClusterRole allows: it works, and says what it cannot do."""

import asyncio

import pytest

from tests.support.cluster.accounts import account, rule
from tests.support.objects.jobs import JobBuilder
from tests.support.playing import playing, submit
from tests.support.waiting import eventually
from trainwright.api.kinds import KINDS, PYTORCH
from trainwright.engine import Settings
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.resources import EVENTS
from trainwright.operator.application import Parts
from trainwright.operator.options import LeaderElectionOptions, OperatorError, OperatorOptions, WebhookOptions
from trainwright.operator.process import prepare

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(60)]

ALL = "create delete get list patch update watch"
UPSTREAM = [
    rule("", "pods events", ALL),
    rule("", "services", "create delete get list watch"),
    rule("", "pods/exec", "create"),
    rule("", "configmaps", "create list update watch"),
    rule("", "serviceaccounts", "create get list watch"),
    rule("", "secrets", "get list update watch"),
    rule("admissionregistration.k8s.io", "validatingwebhookconfigurations", "get list update watch"),
    rule("autoscaling", "horizontalpodautoscalers", ALL),
    rule("kubeflow.org", "pytorchjobs", ALL),
    rule("kubeflow.org", "pytorchjobs/status", "get patch update"),
    rule("kubeflow.org", "pytorchjobs/finalizers", "update"),
    rule("rbac.authorization.k8s.io", "roles rolebindings", "create list update watch"),
    rule("scheduling.volcano.sh", "podgroups", ALL),
    rule("scheduling.x-k8s.io", "podgroups", ALL),
]


async def test_upstreams_role_is_enough_to_run_jobs(
    client: Client, real_namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    config = await account(client, real_namespace, "upstream", UPSTREAM)
    names = WebhookOptions(configuration=f"none.{real_namespace}")
    options = OperatorOptions(namespace=real_namespace, settings=Settings(dead_node_seconds=60), webhooks=names)
    parts, stop = Parts(config, KINDS, options), asyncio.Event()
    async with playing(client, real_namespace) as kubelet, asyncio.TaskGroup() as group:
        group.create_task(parts.work(await prepare(config, KINDS, options), stop))
        job = JobBuilder("job", namespace=real_namespace).master().workers(1).run_policy(cleanPodPolicy="All")
        await submit(client, job)
        await eventually(lambda: conditions(client, real_namespace), lambda seen: "Running" in seen)
        await kubelet.finish("job-master-0")
        await eventually(lambda: conditions(client, real_namespace), lambda seen: "Succeeded" in seen)
        await eventually(lambda: reasons(client, real_namespace), lambda seen: "SuccessfulDeletePod" in seen)
        stop.set()
    assert "no right to list and watch nodes: pods on nodes that are gone cannot be replaced" in caplog.text
    assert f"off: there is no ValidatingWebhookConfiguration none.{real_namespace}" in caplog.text
    assert "forbidden" not in caplog.text


async def test_a_lease_takes_a_rule_that_upstreams_role_lacks(client: Client, real_namespace: str) -> None:
    config = await account(client, real_namespace, "upstream", UPSTREAM)
    options = OperatorOptions(leader_election=LeaderElectionOptions(namespace=real_namespace))
    with pytest.raises(OperatorError, match=r"--leader-elect: no right to get leases .* verbs \[get, create, update"):
        await prepare(config, KINDS, options)


async def conditions(client: Client, namespace: str) -> set[str]:
    job: Object = await client.get(PYTORCH.resource, "job", namespace=namespace)
    return {condition["type"] for condition in job.get("status", {}).get("conditions", ())}


async def reasons(client: Client, namespace: str) -> set[str]:
    return {event["reason"] for event in (await client.list(EVENTS, namespace=namespace)).items}
