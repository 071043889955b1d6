"""The operator as the chart starts it: with exactly the rendered arguments and the rendered service account's token, on
a real API server that calls its webhooks."""

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.commands.helm import Helm, Key
from tests.support.commands.real_kubectl import RealKubectl
from tests.support.kubernetes.chart_installation import Installation, installation_in
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.kubernetes.fake_kubelet import running_kubelet
from tests.support.objects.jobs import JobBuilder
from tests.support.thoroughness import THOROUGH
from tests.support.waiting import eventually
from trainwright.api.kinds import KINDS, PYTORCH, Kind
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError
from trainwright.objects import Object
from trainwright.objects.resources import PODS

pytestmark = pytest.mark.apiserver

TENSORFLOW = KINDS["TFJob"]


@pytest.fixture
def installation(control_plane: ControlPlane, real_namespace: str, tmp_path: Path) -> Iterator[Installation]:
    with installation_in(control_plane, real_namespace, tmp_path) as one:
        yield one


@pytest.fixture
def kubectl(control_plane: ControlPlane) -> RealKubectl:
    return RealKubectl(control_plane)


@pytest.fixture
async def client(control_plane: ControlPlane) -> AsyncIterator[Client]:
    async with Client(control_plane.config) as client:
        yield client


@pytest.mark.parametrize("scope", ["cluster", "namespace"])
async def test_jobs_succeed_and_webhooks_answer(
    client: Client, installation: Installation, scope: str, kubectl: RealKubectl
) -> None:
    namespace = installation.namespace
    if scope == "namespace":
        installation.values["scope"] = {"namespace": namespace}
    installation.install()

    async with installation.ready(), running_kubelet(client, namespace) as kubelet:
        for kind, pods in ((PYTORCH, ["job-master-0", "job-worker-0"]), (TENSORFLOW, ["job-worker-0"])):
            job = JobBuilder("job", kind=kind, namespace=namespace).replica("Worker")
            await client.create(kind.resource, (job.master() if kind is PYTORCH else job).manifest())
            await eventually(lambda: conditions(client, namespace, kind), lambda seen: "Running" in seen)  # noqa: B023
            for pod in pods:
                await kubelet.finish(pod)
            await eventually(lambda: conditions(client, namespace, kind), lambda seen: "Succeeded" in seen)  # noqa: B023
            await client.delete(kind.resource, "job", namespace=namespace)
            await eventually(lambda: pod_names(client, namespace), lambda seen: not seen)

        wrong = JobBuilder("wrong", namespace=namespace).replica("Manager")
        with pytest.raises(ApiError, match=r'admission webhook "validator.pytorchjob.training-operator.kubeflow.org"'):
            await client.create(PYTORCH.resource, wrong.manifest())
        if scope == "namespace":
            elsewhere = wrong.metadata(namespace="default")
            await client.create(PYTORCH.resource, elsewhere.manifest())
            await client.delete(PYTORCH.resource, "wrong", namespace="default")

    # In namespaces that are being deleted, creating pods is forbidden for everybody.
    assert re.findall(r'not allowed.*|User "\S+" cannot.*', installation.log) == []


def permissions(rendered: dict[Key, Object]) -> list[tuple[Key, int, str]]:
    """The roles of the operator, the number of the rule in it, and each verb."""
    return [
        (key, number, verb)
        for key, role in rendered.items()
        if key[0] in {"Role", "ClusterRole"}
        for number, rule in enumerate(role["rules"])
        for verb in rule["verbs"]
    ]


SAMPLE = 5


@pytest.mark.timeout(600)
async def test_every_permission_that_is_taken_away_is_named(
    helm: Helm, kubectl: RealKubectl, installation: Installation
) -> None:
    """A sample with a seed; all permissions under `make test-all`."""
    installation.values["leaderElection"] = {"enabled": True}
    rendered = helm.render("--values", written(installation))
    every = permissions(rendered)
    installation.install()
    for key, number, verb in every if THOROUGH else random.Random(4).sample(every, SAMPLE):
        role = rendered[key]
        rules = [dict(rule) for rule in role["rules"]]
        rules[number] = {**rules[number], "verbs": [one for one in rules[number]["verbs"] if one != verb]}
        place = ["-n", key[1]] if key[1] else []
        if not rules[number]["verbs"]:
            del rules[number]
        patched = json.dumps({"rules": rules})
        kubectl(*place, "patch", key[0], key[2], "--type=merge", "-p", patched)
        (resource,) = role["rules"][number]["resources"]
        plural, _, subresource = resource.partition("/")
        (group,) = role["rules"][number]["apiGroups"]
        named = (f"{plural}.{group}" if group else plural) + (f"/{subresource}" if subresource else "")

        (installation.directory / "operator.log").unlink(missing_ok=True)
        process = installation.process()
        try:
            await eventually(
                lambda: asyncio.to_thread(lambda: installation.log),
                lambda log: names(log, verb, named),  # noqa: B023 (awaited at once)
            )
        finally:
            process.close()
        kubectl(*place, "patch", key[0], key[2], "--type=merge", "-p", json.dumps({"rules": role["rules"]}))


def names(log: str, verb: str, resource: str) -> bool:
    """The operator's own words, or those of the API server, which quotes the resource without its group."""
    plain = resource.split(".", maxsplit=1)[0]
    return f"not allowed to {verb} {resource}" in log or (f'cannot {verb} resource "{plain}' in log)


def written(installation: Installation) -> Path:
    path = installation.directory / "values.yaml"
    path.write_text(json.dumps(installation.values))
    return path


async def conditions(client: Client, namespace: str, kind: Kind) -> set[str]:
    job = await client.get(kind.resource, "job", namespace=namespace)
    return {one["type"] for one in job.get("status", {}).get("conditions", ()) if one["status"] == "True"}


async def pod_names(client: Client, namespace: str) -> list[str]:
    """Of jobs: the pod of the operator's Deployment has no node to run on."""
    pods = await client.list(PODS, namespace=namespace, label_selector="training.kubeflow.org/job-name")
    return [one["metadata"]["name"] for one in pods.items]
