"""Broken and hostile manifests on a real API server, beside a healthy job: the schema refuses each, or the operator
fails the job with the field's name, and the healthy job succeeds."""

import itertools
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.cluster.controlplane import ControlPlane
from tests.support.cluster.fake_kubelet import running_kubelet
from tests.support.harness.job_harness import JobHarness, conditions_of
from tests.support.harness.running_operator import running_operator, settled
from tests.support.objects.hostile import COMPLETE_SPEC, corrupted_specs
from tests.support.objects.jobs import JobBuilder, template
from tests.support.waiting import eventually
from trainwright.api.crd import render_crd
from trainwright.api.kinds import OPERATOR, PYTORCH, Kind
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, ApiError, NotFound
from trainwright.kube.client.requests import Request, Response
from trainwright.objects import Object
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(180)]

OPEN = replace(PYTORCH, name="OpenJob", plural="openjobs")
"""PyTorchJob under another name with an open schema, so that the operator's own checks are reached."""
BOTH_SCHEMAS = pytest.mark.parametrize("kind", [PYTORCH, OPEN], ids=lambda kind: kind.name)

A_FIELD = re.compile(r"\b(spec|metadata)\b[.:\[]")
MOST_WRITES = 40
"""For one job of two pods, events included: endless retries would need hundreds."""
_numbers = itertools.count(1)


class WriteCounter(Client):
    """A client that counts its writes."""

    writes = 0

    async def send(self, request: Request) -> Response:
        self.writes += request.method != "GET"
        return await super().send(request)


@BOTH_SCHEMAS
@settings(
    max_examples=5 + (settings.default.max_examples // 50 if settings.default else 0),
    phases=[Phase.generate],  # every example is a dozen jobs already
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(specs=st.lists(corrupted_specs(), min_size=12, max_size=12))
async def test_corrupted_manifests_are_refused_or_fail_and_name_the_field(
    control_plane: ControlPlane, real_namespace: str, caplog: pytest.LogCaptureFixture, kind: Kind, specs: list[Any]
) -> None:
    async with beside_a_healthy_job(control_plane, real_namespace, kind) as harness:
        accepted = {}
        for spec in specs:
            name = f"job-{next(_numbers)}"
            if await is_accepted(harness, name, spec):
                accepted[name] = spec
        for name, spec in accepted.items():
            await wait_for_decision(harness, name, spec)
    assert logged_errors(caplog) == []


def changed(**changes: Any) -> Object:
    return {**COMPLETE_SPEC, **changes}


def roles(**replicas: Any) -> Object:
    return changed(pytorchReplicaSpecs=replicas, elasticPolicy=None)


def pod(**spec: Any) -> Object:
    return {"replicas": 1, "template": {"spec": {**template()["spec"], **spec}}}


def container(**fields: Any) -> Object:
    return {"replicas": 1, "template": template(**fields)}


GOOD = container()
REPLICAS = "spec.pytorchReplicaSpecs"
TEMPLATE = f"{REPLICAS}[Master].template"
CORPUS: Mapping[str, tuple[Any, str]] = {
    "no-spec": (None, REPLICAS),
    "number-for-spec": (5, "spec"),
    "list-for-spec": ([], "spec"),
    "no-roles": (roles(), REPLICAS),
    "list-of-roles": (changed(pytorchReplicaSpecs=[GOOD]), REPLICAS),
    "unknown-role": (roles(Chief=GOOD), f"{REPLICAS}[Chief]"),
    "unicode-role": (roles(Master=GOOD, Wörker=GOOD), f"{REPLICAS}[Wörker]"),
    "same-role-twice": (roles(Worker=GOOD, worker=GOOD), f"{REPLICAS}[worker]"),
    "null-template": (roles(Master={"replicas": 1, "template": None}), TEMPLATE),
    "no-containers": (roles(Master=pod(containers=[])), f"{TEMPLATE}.spec.containers"),
    "null-container": (roles(Master=pod(containers=[None])), f"{TEMPLATE}.spec.containers"),
    "no-image": (roles(Master=container(image=None)), f"{TEMPLATE}.spec.containers[0].image"),
    "number-for-image": (roles(Master=container(image=1)), f"{TEMPLATE}.spec.containers[0].image"),
    "huge-number": (roles(Master=GOOD, Worker={**GOOD, "replicas": 2**31 - 1}), f"{REPLICAS}[Worker].replicas"),
    "huger-number": (roles(Master=GOOD, Worker={**GOOD, "replicas": 10**30}), f"{REPLICAS}[Worker].replicas"),
    "negative-number": (roles(Master=GOOD, Worker={**GOOD, "replicas": -1}), f"{REPLICAS}[Worker].replicas"),
    "text-for-number": (roles(Master=GOOD, Worker={**GOOD, "replicas": "2"}), f"{REPLICAS}[Worker].replicas"),
    "half-a-pod": (roles(Master=GOOD, Worker={**GOOD, "replicas": 1.5}), f"{REPLICAS}[Worker].replicas"),
    "unknown-policy": (roles(Master={**GOOD, "restartPolicy": "Sometimes"}), f"{REPLICAS}[Master].restartPolicy"),
    "text-for-limit": (changed(runPolicy={"backoffLimit": "three"}), "spec.runPolicy.backoffLimit"),
    "huge-limit": (changed(runPolicy={"backoffLimit": 2**40}), "spec.runPolicy.backoffLimit"),
    "elastic-without-workers": (changed(pytorchReplicaSpecs={"Master": GOOD}), f"{REPLICAS}[Worker]"),
    # The rest is known only when the API server refuses a pod.
    "unknown-field": (roles(Master=container(comand=["true"])), TEMPLATE),
    "no-quantity": (roles(Master=container(resources={"limits": {"cpu": "lots"}})), TEMPLATE),
    "bad-env-name": (roles(Master=container(env=[{"name": "𝒲", "value": "1"}])), TEMPLATE),
    "text-for-grace": (roles(Master=pod(terminationGracePeriodSeconds="soon")), TEMPLATE),
}  # fmt: skip
"""A wrong spec, and the field that the schema or the job's condition must name."""
LONG_NAME = "a" * 63


@BOTH_SCHEMAS
async def test_known_mistakes_are_reported_with_their_field(
    control_plane: ControlPlane, real_namespace: str, caplog: pytest.LogCaptureFixture, kind: Kind
) -> None:
    async with beside_a_healthy_job(control_plane, real_namespace, kind) as harness:
        jobs = {**CORPUS, LONG_NAME: (COMPLETE_SPEC, "metadata.name")}
        accepted = [
            name for name, (spec, field) in jobs.items() if await is_accepted(harness, name, spec, naming=field)
        ]
        for name in accepted:
            spec, field = jobs[name]
            await harness.wait_for_end(name, "Failed")
            assert await wait_for_decision(harness, name, spec) == "failed"
            assert field in (await harness.conditions(name))[-1][3], name
            assert await harness.pods(name) == {}, name
    assert (len(accepted) == len(jobs)) is (kind is OPEN)
    assert logged_errors(caplog) == []


async def test_a_corrupted_status_fails_only_its_own_job(
    control_plane: ControlPlane, real_namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with beside_a_healthy_job(control_plane, real_namespace, OPEN) as harness:
        corrupted = {"conditions": {"type": 5}, "replicaStatuses": [], "startTime": "yesterday"}
        await harness.submit(JobBuilder("corrupted", kind=OPEN).master().suspend())
        await eventually(lambda: harness.conditions("corrupted"), bool)
        await harness.client.patch(
            OPEN.resource, "corrupted", {"status": corrupted}, namespace=real_namespace, subresource="status"
        )
        failed = await eventually(
            lambda: harness.status("corrupted"), lambda status: status["conditions"] != {"type": 5}
        )
        assert failed["conditions"][-1]["reason"] == "OpenJobFailedValidation"
        assert "status" in failed["conditions"][-1]["message"]
    assert logged_errors(caplog) == []


@asynccontextmanager
async def beside_a_healthy_job(plane: ControlPlane, namespace: str, kind: Kind) -> AsyncIterator[JobHarness]:
    """A harness with a job that exists before the block and succeeds after it, beside the jobs of the test."""
    async with WriteCounter(plane.config) as counted, Client(plane.config) as client:
        await define(client, kind)
        async with (
            running_kubelet(client, namespace) as kubelet,
            running_operator(counted, namespace=namespace, kinds={kind.name: kind}) as operator,
        ):
            harness = JobHarness(client, namespace, operator, kind=kind)
            healthy = f"healthy-{next(_numbers)}"
            await harness.submit(JobBuilder(healthy, kind=kind).master().workers(1))
            yield harness
            await harness.wait_until_running(healthy)
            await kubelet.finish(f"{healthy}-master-0")
            await harness.wait_for_end(healthy, "Succeeded")
            await settled(operator)
            jobs = len((await client.list(kind.resource, namespace=namespace)).items)
            assert counted.writes < MOST_WRITES * jobs


async def define(client: Client, kind: Kind) -> None:
    definition = render_crd(kind)
    if kind is OPEN:
        (version,) = definition["spec"]["versions"]
        version["schema"] = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version["subresources"] = {"status": {}}
        version["additionalPrinterColumns"] = []
        try:
            await client.create(CUSTOM_RESOURCE_DEFINITIONS, definition)
        except AlreadyExists:
            return

        async def is_served() -> bool:
            try:
                await client.list(kind.resource)
            except NotFound:
                return False
            return True

        await eventually(is_served, bool)


async def is_accepted(harness: JobHarness, name: str, spec: Any, *, naming: str = "") -> bool:
    """True if the server accepts the job; a refusal must name the wrong field."""
    refused = await refusal(harness, name, spec)
    if refused is None:
        return True
    assert refused.code in {400, 422}, refused
    assert A_FIELD.search(refused.message), refused
    assert dotted(naming) in dotted(refused.message)
    return False


async def refusal(harness: JobHarness, name: str, spec: Any) -> ApiError | None:
    metadata = {"name": name, "namespace": harness.namespace}
    job = {"apiVersion": "kubeflow.org/v1", "kind": harness.kind.name, "metadata": metadata, "spec": spec}
    try:
        await harness.client.create(harness.kind.resource, job)
    except ApiError as refused:
        return refused
    return None


def dotted(path: str) -> str:
    """The path as schemas write it, with dots before the keys of maps."""
    return path.replace("[", ".").replace("]", "")


async def wait_for_decision(harness: JobHarness, name: str, spec: Any) -> str:
    """Waits until the operator shows a decision about the job, and returns it."""
    if has_another_manager(spec):
        await settled(harness.operator)
        assert await harness.status(name) == {}, spec
        return "ignored"

    def decided(seen: Object) -> bool:
        shown = conditions_of(seen)
        return bool(shown) and (shown[-1][0] != "Created" or requests_no_pods(spec))

    kind, status, reason, message = conditions_of(await eventually(lambda: harness.job(name), decided))[-1]
    if kind != "Failed":
        return kind.lower()
    assert status == "True"
    if reason == f"{harness.kind.name}Failed":
        return "failed by a limit"
    assert reason == f"{harness.kind.name}FailedValidation"
    assert A_FIELD.search(message), message
    await harness.wait_for_events(name, ("Warning", reason, message))
    return "failed"


def has_another_manager(spec: Any) -> bool:
    policy = spec.get("runPolicy") if isinstance(spec, dict) else None
    manager = policy.get("managedBy") if isinstance(policy, dict) else None
    return manager is not None and manager != OPERATOR


def requests_no_pods(spec: Any) -> bool:
    return any(replica.get("replicas") == 0 for replica in spec["pytorchReplicaSpecs"].values() if replica)


def logged_errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
