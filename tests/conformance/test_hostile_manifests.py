"""Broken and hostile manifests on a real API server, beside a healthy job: the schema refuses each, or the operator
fails the job with the field's name, and the healthy job succeeds."""

import itertools
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.harness.cluster_harness import RealClusterHarness
from tests.support.harness.job_harness import JobHarness, conditions_of
from tests.support.harness.running_operator import running_operator, settled
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.kubernetes.fake_kubelet import running_kubelet
from tests.support.objects.hostile import complete_spec, corrupted_specs
from tests.support.objects.jobs import JobBuilder, pair, pair_pods, template
from tests.support.objects.junk import of_any_kind
from tests.support.waiting import eventually
from trainwright.api.crd import render_crd
from trainwright.api.kinds import KINDS, OPERATOR, Kind
from trainwright.api.kinds.paddle import PADDLE
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, ApiError, NotFound
from trainwright.kube.client.requests import Request, Response
from trainwright.objects import Object
from trainwright.objects.resources import CUSTOM_RESOURCE_DEFINITIONS

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(300 + settings().max_examples // 4)]

OPEN = {kind.name: replace(kind, name=f"Open{kind.name}", plural=f"open{kind.plural}") for kind in KINDS.values()}
"""The kinds under other names with open schemas, so that the operator's own checks are reached."""
SCHEMAS = {"closed": KINDS, "open": OPEN}
BOTH_SCHEMAS = pytest.mark.parametrize("schema", SCHEMAS)

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


@pytest.mark.thorough("closed")  # where the server refuses most of them, so that the operator sees few
@BOTH_SCHEMAS
@settings(
    max_examples=2 + (settings.default.max_examples // 50 if settings.default else 0),
    phases=[Phase.generate],  # every example is a dozen jobs already
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(drawn=st.lists(of_any_kind(corrupted_specs), min_size=12, max_size=12))
async def test_corrupted_manifests_are_refused_or_fail_and_name_the_field(
    control_plane: ControlPlane,
    real_namespace: str,
    caplog: pytest.LogCaptureFixture,
    schema: str,
    drawn: list[tuple[Kind, Any]],
) -> None:
    kinds = SCHEMAS[schema]
    async with beside_healthy_jobs(control_plane, real_namespace, kinds.values()) as harness:
        accepted = []
        for kind, spec in drawn:
            jobs, name = harness.of(kinds[kind.name]), f"job-{next(_numbers)}"
            if await is_accepted(jobs, name, spec):
                accepted.append((jobs, name, spec))
        for jobs, name, spec in accepted:
            await wait_for_decision(jobs, name, spec)
    assert logged_errors(caplog) == []


LONG_NAME = "a" * 63
Mistakes = dict[str, tuple[Any, str]]
"""By name of the job: a wrong spec, and the field that the schema or the job's condition must name."""


def mistakes_of(kind: Kind) -> Mistakes:
    spec, field, main = complete_spec(kind), kind.replicas_field, kind.roles[0].name
    replicas, template_of_main = f"spec.{field}", f"spec.{field}[{main}].template"
    good: Object = {"replicas": 1, "template": template(name=kind.container)}

    def changed(**changes: Any) -> Object:
        return {**spec, **changes}

    def roles(**of: Any) -> Object:
        """These roles, and the one that the kind demands."""
        return changed(**{field: {main: good, **of}, "elasticPolicy": None})

    def in_main(**fields: Any) -> Object:
        return roles(**{main: {**good, **fields}})

    def pod(**fields: Any) -> Object:
        return in_main(template={"spec": {**good["template"]["spec"], **fields}})

    def container(**fields: Any) -> Object:
        return in_main(template=template(**{"name": kind.container, **fields}))

    def workers(number: Any) -> Object:
        return roles(Worker={**good, "replicas": number})

    return {
        "no-spec": (None, replicas),
        "number-for-spec": (5, "spec"),
        "list-for-spec": ([], "spec"),
        "no-roles": (changed(**{field: {}}), replicas),
        "list-of-roles": (changed(**{field: [good]}), replicas),
        "unknown-role": (roles(Banana=good), f"{replicas}[Banana]"),
        "unicode-role": (roles(Wörker=good), f"{replicas}[Wörker]"),
        "same-role-twice": (roles(Worker=good, worker=good), f"{replicas}[worker]"),
        "null-template": (in_main(template=None), template_of_main),
        "no-containers": (pod(containers=[]), f"{template_of_main}.spec.containers"),
        "null-container": (pod(containers=[None]), f"{template_of_main}.spec.containers"),
        "no-image": (container(image=None), f"{template_of_main}.spec.containers[0].image"),
        "number-for-image": (container(image=1), f"{template_of_main}.spec.containers[0].image"),
        "huge-number": (workers(2**31 - 1), f"{replicas}[Worker].replicas"),
        "huger-number": (workers(10**30), f"{replicas}[Worker].replicas"),
        "negative-number": (workers(-1), f"{replicas}[Worker].replicas"),
        "text-for-number": (workers("2"), f"{replicas}[Worker].replicas"),
        "half-a-pod": (workers(1.5), f"{replicas}[Worker].replicas"),
        "unknown-policy": (in_main(restartPolicy="Sometimes"), f"{replicas}[{main}].restartPolicy"),
        "text-for-limit": (changed(runPolicy={"backoffLimit": "three"}), "spec.runPolicy.backoffLimit"),
        "huge-limit": (changed(runPolicy={"backoffLimit": 2**40}), "spec.runPolicy.backoffLimit"),
        LONG_NAME: (spec, "metadata.name"),
        # The rest is known only when the API server refuses a pod.
        "unknown-field": (container(comand=["true"]), template_of_main),
        "no-quantity": (container(resources={"limits": {"cpu": "lots"}}), template_of_main),
        "bad-env-name": (container(env=[{"name": "𝒲", "value": "1"}]), template_of_main),
        "text-for-grace": (pod(terminationGracePeriodSeconds="soon"), template_of_main),
        **own_mistakes(kind.framework, spec, good, changed),
    }


def own_mistakes(framework: str, spec: Object, good: Object, changed: Callable[..., Object]) -> Mistakes:
    match framework:
        case "pytorch":
            masters = changed(pytorchReplicaSpecs={"Master": good})
            return {"elastic-without-workers": (masters, "spec.pytorchReplicaSpecs[Worker]")}
        case "tensorflow":
            many = {**good, "replicas": 20_000}
            return {
                "number-for-policy": (changed(successPolicy=5), "spec.successPolicy"),
                "text-for-flag": (changed(enableDynamicWorker="yes"), "spec.enableDynamicWorker"),
                "two-chiefs": (changed(tfReplicaSpecs={"Chief": good, "Master": good}), "spec.tfReplicaSpecs"),
                "long-tf-config": (changed(tfReplicaSpecs={"Worker": many}), "spec.tfReplicaSpecs"),
            }
        case "xgboost":
            many = {**good, "replicas": 20_000}
            return {
                "no-master": (changed(xgbReplicaSpecs={"Worker": good}), "spec.xgbReplicaSpecs[Master]"),
                "long-addresses": (
                    changed(xgbReplicaSpecs={**spec["xgbReplicaSpecs"], "Worker": many}),
                    "spec.xgbReplicaSpecs[Worker].replicas",
                ),
            }
        case "paddle":
            return {"number-for-policy": (changed(elasticPolicy=5), "spec.elasticPolicy")}
    return {}


@BOTH_SCHEMAS
@pytest.mark.parametrize("name_of_kind", KINDS)
async def test_known_mistakes_are_reported_with_their_field(
    control_plane: ControlPlane,
    real_namespace: str,
    caplog: pytest.LogCaptureFixture,
    name_of_kind: str,
    schema: str,
) -> None:
    kind, jobs = SCHEMAS[schema][name_of_kind], mistakes_of(KINDS[name_of_kind])
    async with beside_healthy_jobs(control_plane, real_namespace, [kind]) as harness:
        accepted = [
            name for name, (spec, field) in jobs.items() if await is_accepted(harness, name, spec, naming=field)
        ]
        for name in accepted:
            spec, field = jobs[name]
            await harness.wait_for_end(name, "Failed")
            assert await wait_for_decision(harness, name, spec) == "failed"
            assert field in (await harness.conditions(name))[-1][3], name
            assert await harness.pods(name) == {}, name
    assert (len(accepted) == len(jobs)) is (schema == "open")
    assert logged_errors(caplog) == []


async def test_a_corrupted_status_fails_only_its_own_job(
    control_plane: ControlPlane, real_namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with beside_healthy_jobs(control_plane, real_namespace, OPEN.values()) as harness:
        corrupted = {"conditions": {"type": 5}, "replicaStatuses": [], "startTime": "yesterday"}
        for kind in OPEN.values():
            jobs = harness.of(kind)
            await jobs.submit(pair("corrupted", kind).suspend())
            await eventually(lambda: jobs.conditions("corrupted"), bool)  # noqa: B023 (awaited at once)
            await jobs.client.patch(
                kind.resource, "corrupted", {"status": corrupted}, namespace=real_namespace, subresource="status"
            )
        for kind in OPEN.values():
            jobs = harness.of(kind)
            failed = await eventually(
                lambda: jobs.status("corrupted"),  # noqa: B023
                lambda status: status["conditions"] != {"type": 5},
            )
            assert failed["conditions"][-1]["reason"] == f"{kind.name}FailedValidation"
            assert "status" in failed["conditions"][-1]["message"]
    assert logged_errors(caplog) == []


async def test_the_manifest_that_ends_the_go_operators_process_runs(harness: RealClusterHarness) -> None:
    """The row on `elasticPolicy` without Worker of docs/compatibility.md."""
    jobs = harness.of(PADDLE)
    await jobs.submit(JobBuilder("job", kind=PADDLE).master().spec(elasticPolicy={}))
    await jobs.wait_until_running("job")
    await jobs.end("job-master-0", exit_code=0)
    await jobs.wait_for_end("job", "Succeeded")
    warning = "spec.elasticPolicy has no effect for PaddleJob, use kubectl scale and spec.runPolicy instead"
    await jobs.wait_for_events("job", ("Warning", "DeprecatedField", warning))


@asynccontextmanager
async def beside_healthy_jobs(plane: ControlPlane, namespace: str, kinds: Iterable[Kind]) -> AsyncIterator[JobHarness]:
    """A harness for jobs of the first kind, with a job of each kind that exists before the block and succeeds after it,
    beside the jobs of the test."""
    served = {kind.name: kind for kind in kinds}
    async with WriteCounter(plane.config) as counted, Client(plane.config) as client:
        for kind in served.values():
            await define(client, kind)
        async with (
            running_kubelet(client, namespace) as kubelet,
            running_operator(counted, namespace=namespace, kinds=served) as operator,
        ):
            harness = JobHarness(client, namespace, operator, kind=next(iter(served.values())))
            healthy = {f"healthy-{next(_numbers)}": kind for kind in served.values()}
            for name, kind in healthy.items():
                await harness.submit(pair(name, kind))
            yield harness
            for name, kind in healthy.items():
                await harness.of(kind).wait_until_running(name)
                for pod in reversed(pair_pods(name, kind)):
                    await kubelet.finish(pod)
                await harness.of(kind).wait_for_end(name, "Succeeded")
            await settled(operator)
            jobs = [await client.list(kind.resource, namespace=namespace) for kind in served.values()]
            assert counted.writes < MOST_WRITES * sum(len(found.items) for found in jobs)


async def define(client: Client, kind: Kind) -> None:
    if kind in OPEN.values():
        definition = render_crd(kind)
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
        return bool(shown) and (shown[-1][0] != "Created" or requests_no_pods(harness.kind, spec))

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


def requests_no_pods(kind: Kind, spec: Any) -> bool:
    return any(replica.get("replicas") == 0 for replica in spec[kind.replicas_field].values() if replica)


def logged_errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
