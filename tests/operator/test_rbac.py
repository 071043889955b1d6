"""The RBAC rules on real API servers: the operator runs jobs with exactly them, and with upstream's ClusterRole."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.embedded_apiserver import running_embedded
from tests.support.harness.job_harness import submit
from tests.support.harness.running_operator import running_operator
from tests.support.kubernetes.controlplane import free_ports
from tests.support.kubernetes.fake_kubelet import FakeKubelet, running_kubelet
from tests.support.kubernetes.podgroups import serve_pod_groups
from tests.support.kubernetes.service_accounts import account, rule
from tests.support.objects.jobs import JobBuilder, pair, pair_pods, service
from tests.support.objects.manifests import webhook_configuration
from tests.support.objects.orchestra import ORCHESTRA, Orchestra
from tests.support.waiting import eventually
from trainwright.api.kinds import KINDS, PYTORCH, Kind
from trainwright.engine import Settings
from trainwright.engine.frameworks import FRAMEWORKS
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.kubeconfig import ClusterConfig
from trainwright.objects import Object
from trainwright.objects.kinds.gangs import GangScheduler
from trainwright.objects.resources import (
    AUTOSCALERS,
    CONFIG_MAPS,
    EVENTS,
    LEASES,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    Resource,
)
from trainwright.operator import install_crds
from trainwright.operator.main import Application
from trainwright.operator.options import LeaderElectionOptions, OperatorError, OperatorOptions, WebhookOptions
from trainwright.operator.rbac import FEATURES, Feature, Rule, job_rules
from trainwright.operator.setup.capabilities import prepare

ROOT = Path(__file__).parents[2]
NEW_FRAMEWORK = {ORCHESTRA.framework: Orchestra()}

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
    *(
        granted
        for jobs in ("jaxjobs", "mpijobs", "paddlejobs", "pytorchjobs", "tfjobs", "xgboostjobs")
        for granted in (
            rule("kubeflow.org", jobs, ALL),
            rule("kubeflow.org", f"{jobs}/status", "get patch update"),
            rule("kubeflow.org", f"{jobs}/finalizers", "update"),
        )
    ),
    rule("rbac.authorization.k8s.io", "roles rolebindings", "create list update watch"),
    rule("scheduling.volcano.sh", "podgroups", ALL),
    rule("scheduling.x-k8s.io", "podgroups", ALL),
]


def grants(rules: Iterable[Object]) -> set[tuple[str, str, str]]:
    return {
        (one["apiGroups"][0], resource, verb) for one in rules for resource in one["resources"] for verb in one["verbs"]
    }


@pytest.mark.parametrize("kind", [*KINDS.values(), ORCHESTRA], ids=lambda kind: kind.name)
def test_running_jobs_takes_no_more_than_upstreams_role(kind: Kind) -> None:
    needed = grants(one.render() for one in job_rules([kind], FRAMEWORKS | NEW_FRAMEWORK))
    upstream = {(group, name.replace(PYTORCH.plural, kind.plural), verb) for group, name, verb in grants(UPSTREAM)}
    assert needed <= upstream


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)
def test_a_feature_says_whether_upstreams_role_is_enough(feature: Feature) -> None:
    assert feature.in_upstream_role == (grants(one.render() for one in feature.rules) <= grants(UPSTREAM))


def test_the_page_shows_the_rules() -> None:
    tool = ROOT / "tools" / "operator_rbac.py"
    printed = subprocess.run([sys.executable, tool], capture_output=True, text=True, check=True).stdout
    page = (ROOT / "docs" / "how-to" / "run-the-operator.md").read_text()
    assert printed in page, "run: .venv/bin/python tools/operator_rbac.py --write"


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.apiserver)])
async def either_cluster(request: pytest.FixtureRequest) -> AsyncIterator[tuple[Client, str]]:
    """A client of the embedded server, then of the real one, each with a namespace."""
    if request.param == "real":
        plane, namespace = request.getfixturevalue("control_plane"), request.getfixturevalue("real_namespace")
        async with Client(plane.config) as client:
            yield client, namespace
        return
    async with running_embedded() as embedded, Client(embedded.config) as client:
        await install_crds(client, KINDS.values())
        yield client, "default"


async def test_jobs_run_with_the_rules_for_jobs_alone(
    either_cluster: tuple[Client, str], caplog: pytest.LogCaptureFixture
) -> None:
    client, namespace = either_cluster
    config = await granted(client, namespace, job_rules(KINDS.values()))

    async with operating(client, config, OperatorOptions(namespace=namespace)) as kubelet:
        for kind in KINDS.values():
            job = pair(kind.framework, kind, policy="OnFailure").metadata(namespace=namespace)
            await submit(client, job.run_policy(cleanPodPolicy="All", ttlSecondsAfterFinished=1))
        for kind in KINDS.values():
            await wait_for(client, namespace, kind, "Running")
            await fail_and_wait_for_replacement(client, kubelet, namespace, pair_pods(kind.framework, kind)[1])
            await finish_all(client, kubelet, namespace, kind)
        deleted = {f"Deleted job: {kind.framework}" for kind in KINDS.values()}
        await eventually(lambda: messages(client, namespace), lambda seen: deleted <= seen)

    seen = await messages(client, namespace)
    assert {f"Deleted pod: {pair_pods(kind.framework, kind)[1]}" for kind in KINDS.values()} <= seen
    assert "not allowed to list nodes: pods on lost nodes are not replaced" in caplog.text
    assert "forbidden" not in caplog.text


@pytest.mark.apiserver
async def test_objects_of_a_framework_are_created_and_corrected_with_its_rules(
    client: Client, real_namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    await install_crds(client, [ORCHESTRA])
    config = await granted(client, real_namespace, job_rules([ORCHESTRA], NEW_FRAMEWORK))
    job = JobBuilder("job", kind=ORCHESTRA, namespace=real_namespace).replica("Violin", 2).replica("Audience")
    conductor = {"spec": {"containers": [{"name": "conductor", "image": "example/conductor:1"}]}}
    options: dict[str, Any] = {"kinds": {ORCHESTRA.name: ORCHESTRA}, "frameworks": NEW_FRAMEWORK}

    async with (
        Client(config) as restricted,
        running_kubelet(client, real_namespace) as kubelet,
        running_operator(restricted, namespace=real_namespace, **options),
    ):
        await submit(client, job.replica("Conductor", pod=conductor))
        score = {"playing": "job-violin-0\njob-violin-1\n"}
        await eventually(
            lambda: items(client, CONFIG_MAPS, real_namespace),
            lambda seen: score in [one.get("data") for one in seen],
        )
        await kubelet.finish("job-violin-0")
        await eventually(lambda: conditions(client, real_namespace, ORCHESTRA), lambda seen: "Succeeded" in seen)

    for resource in (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS):
        assert "job-conductor" in [one["metadata"]["name"] for one in await items(client, resource, real_namespace)]
    assert "forbidden" not in caplog.text


@pytest.mark.apiserver
async def test_every_feature_works_with_its_rules(
    client: Client, real_namespace: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_POD_NAMESPACE", real_namespace)
    gang, webhooks = GangScheduler("scheduler-plugins"), f"validator.{real_namespace}"
    await serve_pod_groups(client, gang)
    await client.create(VALIDATING_WEBHOOK_CONFIGURATIONS, webhook_configuration(webhooks))
    await client.create(SERVICES, orphaned_service(), namespace=real_namespace)
    rules = [*job_rules(KINDS.values()), *(one for feature in FEATURES for one in feature.rules)]
    config = await granted(client, real_namespace, rules)
    options = OperatorOptions(
        namespace=real_namespace,
        settings=Settings(gang=gang, dead_node_seconds=60),
        install_crds=True,
        leader_election=LeaderElectionOptions(name="lock"),
        webhooks=WebhookOptions(configuration=webhooks, port=free_ports(1)[0]),
    )
    job = JobBuilder("job", namespace=real_namespace).master().workers(1).run_policy(cleanPodPolicy="All")

    async with operating(client, config, options) as kubelet:
        await submit(client, job.spec(elasticPolicy={"metrics": [CPU]}))
        for resource in (AUTOSCALERS, gang.resource, LEASES, SECRETS):
            await eventually(lambda: items(client, resource, real_namespace), bool)  # noqa: B023 (awaited at once)
        await eventually(lambda: items(client, SERVICES, real_namespace), all_owned)
        await eventually(lambda: client.get(VALIDATING_WEBHOOK_CONFIGURATIONS, webhooks), has_authority)
        await eventually(lambda: conditions(client, real_namespace), lambda seen: "Running" in seen)
        await kubelet.finish("job-master-0")
        for resource in (AUTOSCALERS, gang.resource, SERVICES, PODS):
            await eventually(lambda: items(client, resource, real_namespace), lambda seen: not seen)  # noqa: B023

    await client.delete(VALIDATING_WEBHOOK_CONFIGURATIONS, webhooks)
    assert "not allowed" not in caplog.text
    assert "forbidden" not in caplog.text


@pytest.mark.apiserver
async def test_jobs_run_with_upstreams_role(
    client: Client, real_namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    config = await account(client, real_namespace, "upstream", UPSTREAM)
    names = WebhookOptions(configuration=f"none.{real_namespace}")
    options = OperatorOptions(namespace=real_namespace, settings=Settings(dead_node_seconds=60), webhooks=names)

    async with operating(client, config, options) as kubelet:
        for kind in KINDS.values():
            job = pair(kind.framework, kind).metadata(namespace=real_namespace)
            await submit(client, job.run_policy(cleanPodPolicy="All"))
        for kind in KINDS.values():
            await wait_for(client, real_namespace, kind, "Running")
            await finish_all(client, kubelet, real_namespace, kind)
            await wait_for(client, real_namespace, kind, "Succeeded")
        deleted = {f"Deleted pod: {pair_pods(kind.framework, kind)[1]}" for kind in KINDS.values()}
        await eventually(lambda: messages(client, real_namespace), lambda seen: deleted <= seen)

    assert "not allowed to list nodes: pods on lost nodes are not replaced" in caplog.text
    assert f"off: there is no ValidatingWebhookConfiguration none.{real_namespace}" in caplog.text
    assert "forbidden" not in caplog.text


@pytest.mark.apiserver
async def test_leader_election_takes_a_rule_that_upstreams_role_lacks(client: Client, real_namespace: str) -> None:
    config = await account(client, real_namespace, "upstream", UPSTREAM)
    options = OperatorOptions(leader_election=LeaderElectionOptions(namespace=real_namespace))
    with pytest.raises(OperatorError, match=r"--leader-elect: not allowed to get leases.* verbs \[get, create, update"):
        await prepare(config, KINDS, options)


async def granted(client: Client, namespace: str, rules: Iterable[Rule]) -> ClusterConfig:
    """The credentials of an operator that lives in the namespace and has exactly these rules."""
    rendered = [(one.own_namespace, one.render()) for one in rules]
    return await account(
        client,
        namespace,
        "operator",
        [one for own, one in rendered if not own],
        own_rules=[one for own, one in rendered if own],
    )


@asynccontextmanager
async def operating(client: Client, config: ClusterConfig, options: OperatorOptions) -> AsyncIterator[FakeKubelet]:
    """Runs an operator with these credentials, and a kubelet that is allowed everything."""
    assert options.namespace
    application, stop = Application(config, KINDS, options), asyncio.Event()
    async with running_kubelet(client, options.namespace) as kubelet, asyncio.TaskGroup() as group:
        group.create_task(application.run(await prepare(config, KINDS, options), stop))
        yield kubelet
        stop.set()


CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}


def orphaned_service() -> Object:
    orphan = service("Master", 0, job="job")
    labels = orphan["metadata"]["labels"]
    return {**orphan, "metadata": {"name": "job-master-0", "labels": labels}, "spec": {"ports": [{"port": 23456}]}}


def all_owned(objects: list[Object]) -> bool:
    return all(one["metadata"].get("ownerReferences") for one in objects)


def has_authority(configuration: Object) -> bool:
    return "caBundle" in configuration["webhooks"][0]["clientConfig"]


async def items(client: Client, resource: Resource, namespace: str) -> list[Object]:
    return (await client.list(resource, namespace=namespace)).items


async def wait_for(client: Client, namespace: str, kind: Kind, condition: str) -> None:
    """Waits for a condition of the job that is named after its framework."""
    await eventually(lambda: conditions(client, namespace, kind, kind.framework), lambda seen: condition in seen)


async def fail_and_wait_for_replacement(client: Client, kubelet: FakeKubelet, namespace: str, name: str) -> None:
    """Not for the condition Restarting, which may have gone when the test looks."""
    first = await client.get(PODS, name, namespace=namespace)
    await kubelet.finish(name, exit_code=1)

    async def uids() -> set[str]:
        return {
            pod["metadata"]["uid"] for pod in await items(client, PODS, namespace) if pod["metadata"]["name"] == name
        }

    await eventually(uids, lambda found: found and first["metadata"]["uid"] not in found)


async def finish_all(client: Client, kubelet: FakeKubelet, namespace: str, kind: Kind) -> None:
    """Both pods of the job end with 0, the first one last."""
    first, worker = pair_pods(kind.framework, kind)

    async def running() -> set[str]:
        pods = await items(client, PODS, namespace)
        return {pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"}

    await eventually(running, lambda seen: {first, worker} <= seen)
    for name in (worker, first):
        await kubelet.finish(name)


async def conditions(client: Client, namespace: str, kind: Kind = PYTORCH, name: str = "job") -> set[str]:
    job = await client.get(kind.resource, name, namespace=namespace)
    return {one["type"] for one in job.get("status", {}).get("conditions", ()) if one["status"] == "True"}


async def messages(client: Client, namespace: str) -> set[str]:
    return {event["message"] for event in await items(client, EVENTS, namespace)}
