"""The webhooks' certificates and configuration on a real API server, which then calls the webhooks for every job."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
import yaml

from tests.support.background import in_background
from tests.support.kubernetes.controlplane import ControlPlane, free_ports
from tests.support.kubernetes.go_operator import go_operator_files
from tests.support.kubernetes.service_accounts import account, rule
from tests.support.objects.jobs import JobBuilder, pair
from tests.support.waiting import eventually
from trainwright.api.kinds import KINDS
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError
from trainwright.kube.client.requests import PatchKind, RequestResult
from trainwright.objects import Object
from trainwright.objects.resources import SECRETS, VALIDATING_WEBHOOK_CONFIGURATIONS
from trainwright.operator.options import WebhookOptions
from trainwright.operator.serving import webhook_server
from trainwright.operator.serving.http_server import Address
from trainwright.operator.serving.webhook_certificates import SERVER_LIFETIME, Certificates, read_certificates
from trainwright.operator.serving.webhook_handlers import webhook_handlers
from trainwright.operator.serving.webhook_server import (
    WebhookEndpoint,
    WebhookServer,
    calls_operator,
    names_to_serve,
    secret_data,
    with_authority,
)

SECRET = "training-operator-webhook-cert"
CONFIGURATION: Object = {
    "webhooks": [
        {"name": "a", "clientConfig": {"service": {"name": "training-operator", "namespace": "kubeflow"}}},
        {"name": "b", "clientConfig": {"url": "https://10.0.0.7:9443/validate"}},
    ]
}


ENDPOINT = WebhookEndpoint(namespace="kubeflow", address=Address("", 9443))


def test_certificates_are_for_the_service_and_for_written_addresses() -> None:
    assert names_to_serve(ENDPOINT, CONFIGURATION) == {"training-operator.kubeflow.svc", "10.0.0.7"}
    assert names_to_serve(ENDPOINT, {}) == {"training-operator.kubeflow.svc"}


def test_every_webhook_that_calls_the_operator_gets_the_authority_once() -> None:
    trusting = with_authority(ENDPOINT, CONFIGURATION, b"PEM")
    assert trusting is not None
    bundles = [webhook["clientConfig"]["caBundle"] for webhook in trusting["webhooks"]]
    assert bundles == [base64.b64encode(b"PEM").decode()] * 2
    assert trusting["webhooks"][1]["clientConfig"]["url"] == "https://10.0.0.7:9443/validate"
    assert with_authority(ENDPOINT, trusting, b"PEM") is None
    assert with_authority(ENDPOINT, trusting, b"other") is not None


@pytest.mark.parametrize(
    "endpoint", [replace(ENDPOINT, namespace="default"), replace(ENDPOINT, names=WebhookOptions(service="trainwright"))]
)
def test_webhooks_that_call_another_service_keep_their_authority(endpoint: WebhookEndpoint) -> None:
    theirs, ours = CONFIGURATION["webhooks"]
    trusting = with_authority(endpoint, CONFIGURATION, b"PEM")
    assert trusting is not None
    assert trusting["webhooks"][0] == theirs
    assert "caBundle" in trusting["webhooks"][1]["clientConfig"]
    assert calls_operator(endpoint, CONFIGURATION)
    assert not calls_operator(endpoint, {"webhooks": [theirs]})
    assert calls_operator(ENDPOINT, {"webhooks": [theirs]})
    assert not calls_operator(ENDPOINT, {"webhooks": [{"name": "c"}]})
    assert "url" in ours["clientConfig"]


def test_data_that_is_not_base64_counts_as_empty() -> None:
    assert secret_data({"data": {"ca.crt": "QUI=", "ca.key": "%%", "tls.crt": None}}) == {
        "ca.crt": b"AB",
        "ca.key": b"",
        "tls.crt": b"",
    }
    assert secret_data({}) == {}


# On the real server


class Clock:
    def __init__(self) -> None:
        self.ahead = timedelta()

    def __call__(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@pytest.fixture
def endpoint(real_namespace: str) -> WebhookEndpoint:
    return WebhookEndpoint(
        namespace=real_namespace,
        names=WebhookOptions(configuration=f"validator.{real_namespace}"),
        address=Address("127.0.0.1", free_ports(1)[0]),
    )


@pytest.fixture
async def configured(client: Client, endpoint: WebhookEndpoint) -> AsyncIterator[WebhookEndpoint]:
    """With upstream's configuration, but that it sends reviews to this machine, and only those of one namespace."""
    await client.create(VALIDATING_WEBHOOK_CONFIGURATIONS, configuration(endpoint))
    yield endpoint
    await client.delete(VALIDATING_WEBHOOK_CONFIGURATIONS, endpoint.names.configuration)


def configuration(endpoint: WebhookEndpoint) -> Object:
    made: Object = yaml.safe_load(go_operator_files().webhooks.read_text())
    made["metadata"]["name"] = endpoint.names.configuration
    for webhook in made["webhooks"]:
        path = webhook["clientConfig"]["service"]["path"]
        webhook["clientConfig"] = {"url": f"https://127.0.0.1:{endpoint.address.port}{path}"}
        webhook["namespaceSelector"] = {"matchLabels": {"kubernetes.io/metadata.name": endpoint.namespace}}
    return made


@asynccontextmanager
async def running(client: Client, endpoint: WebhookEndpoint, **options: Any) -> AsyncIterator[WebhookServer]:
    setup = WebhookServer(client, endpoint, webhook_handlers(KINDS), **options)
    async with in_background(setup.run()):
        yield setup


async def serving(setup: WebhookServer) -> None:
    await found(setup, "serving on port")


async def found(setup: WebhookServer, detail: str) -> None:
    async def seen() -> str:
        return setup.health.detail

    await eventually(seen, lambda text: detail in text)


async def certificates(client: Client, endpoint: WebhookEndpoint) -> Certificates:
    secret = await client.get(SECRETS, endpoint.names.secret, namespace=endpoint.namespace)
    held = read_certificates(secret_data(secret))
    assert held is not None
    return held


async def rejection(client: Client, job: JobBuilder) -> str:
    """The error of the submission, as soon as the API server calls the webhook and trusts it."""
    path = job.kind.resource.path(job.manifest()["metadata"]["namespace"])

    async def attempt() -> str:
        try:
            await client.raw("POST", path, body=job.manifest(), params={"dryRun": "All"})
        except ApiError as error:
            return str(error)
        return ""

    return await eventually(attempt, lambda text: text and "failed calling webhook" not in text)


@pytest.mark.apiserver
async def test_users_see_errors_and_warnings_of_the_webhook(
    client: Client, configured: WebhookEndpoint, control_plane: ControlPlane
) -> None:
    async with running(client, configured) as setup:
        await serving(setup)
        bad = JobBuilder("bad", namespace=configured.namespace).master().replica("Worker", 0)
        assert await rejection(client, bad) == (
            'admission webhook "validator.pytorchjob.training-operator.kubeflow.org" denied the request: '
            "spec.pytorchReplicaSpecs[Worker].replicas: Forbidden: must be at least 1"
        )
        for kind in (one for one in KINDS.values() if one.name != "MPIJob"):  # upstream's configuration lacks it
            unknown = pair("bad", kind).metadata(namespace=configured.namespace).replica("Banana")
            assert (await rejection(client, unknown)).startswith(
                f'admission webhook "validator.{kind.singular}.training-operator.kubeflow.org" denied the request: '
                f'spec.{kind.replicas_field}[Banana]: Unsupported value: "Banana": supported values: '
            )
        old = JobBuilder("old", namespace=configured.namespace).workers(2).spec(elasticPolicy={"nProcPerNode": 2})
        arguments = ("--kubeconfig", str(control_plane.kubeconfig), "create", "-f", "-")
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            control_plane.kubectl, *arguments, stdin=pipe, stdout=pipe, stderr=pipe
        )
        out, err = await process.communicate(json.dumps(old.manifest()).encode())
        assert out.decode() == "pytorchjob.kubeflow.org/old created\n"
        assert "Warning: spec.elasticPolicy.nProcPerNode is deprecated" in err.decode()


@pytest.mark.apiserver
async def test_an_empty_secret_is_filled_and_a_removed_authority_restored(
    client: Client, configured: WebhookEndpoint
) -> None:
    empty = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": configured.namespace}}
    before = await client.create(SECRETS, empty)
    async with running(client, configured) as setup:
        await serving(setup)
        made = await certificates(client, configured)
        assert (await client.get(SECRETS, SECRET, namespace=configured.namespace))["metadata"]["uid"] == (
            before["metadata"]["uid"]
        )
        # Applying upstream's manifests again removes the bundle; the API server would reject every job.
        patch = [{"op": "remove", "path": "/webhooks/0/clientConfig/caBundle"}]
        await client.patch(
            VALIDATING_WEBHOOK_CONFIGURATIONS, configured.names.configuration, patch, kind=PatchKind.JSON
        )
        await eventually(lambda: bundle(client, configured), lambda seen: seen == made.authority)


@pytest.mark.apiserver
async def test_replicas_agree_and_a_settled_state_is_not_written_again(
    client: Client, configured: WebhookEndpoint
) -> None:
    other = replace(configured, address=Address("127.0.0.1", free_ports(1)[0]))
    async with running(client, configured) as one, running(client, other) as two:
        await serving(one)
        await serving(two)
        held = await certificates(client, configured)

        for endpoint in (configured, other):
            await eventually(lambda: served(endpoint), lambda seen: seen == held.server.decode())  # noqa: B023
        assert await bundle(client, configured) == held.authority
    before = await versions(client, configured)
    async with running(client, configured) as again:
        await serving(again)
    assert await versions(client, configured) == before


@pytest.mark.apiserver
async def test_certificates_are_renewed_before_they_expire(
    client: Client, configured: WebhookEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook_server, "CHECK_SECONDS", 0.05)
    clock = Clock()
    async with running(client, configured, clock=clock) as setup:
        await serving(setup)
        old = await certificates(client, configured)
        clock.ahead = SERVER_LIFETIME - timedelta(days=30)

        new = await eventually(lambda: certificates(client, configured), lambda held: held.server != old.server)
        assert new.authority == old.authority


@pytest.mark.apiserver
async def test_without_a_configuration_webhooks_are_off(client: Client, endpoint: WebhookEndpoint) -> None:
    async with running(client, endpoint) as setup:
        await found(setup, f"off: there is no ValidatingWebhookConfiguration {endpoint.names.configuration}")
        assert setup.health.ok
        assert (await client.list(SECRETS, namespace=endpoint.namespace)).items == []
        await client.create(VALIDATING_WEBHOOK_CONFIGURATIONS, configuration(endpoint))
        await serving(setup)
        await client.delete(VALIDATING_WEBHOOK_CONFIGURATIONS, endpoint.names.configuration)
        await found(setup, "off: there is no")


@pytest.mark.apiserver
async def test_a_configuration_that_calls_another_operator_is_not_changed(
    client: Client, endpoint: WebhookEndpoint
) -> None:
    """A second operator, on a laptop for example, must not break the webhooks of Kubeflow's."""
    theirs = configuration(endpoint)
    for webhook in theirs["webhooks"]:
        webhook["clientConfig"] = {"service": {"name": "training-operator", "namespace": "kubeflow"}}
    before = await client.create(VALIDATING_WEBHOOK_CONFIGURATIONS, theirs)
    async with running(client, endpoint) as setup:
        await found(setup, f"off: {endpoint.names.configuration} calls Service kubeflow/training-operator instead of")
        assert setup.health.ok
    assert (await client.list(SECRETS, namespace=endpoint.namespace)).items == []
    after = await client.get(VALIDATING_WEBHOOK_CONFIGURATIONS, endpoint.names.configuration)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    await client.delete(VALIDATING_WEBHOOK_CONFIGURATIONS, endpoint.names.configuration)


@pytest.mark.apiserver
async def test_without_permissions_webhooks_are_off_with_a_reason(
    client: Client, configured: WebhookEndpoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    rules = [rule("", "secrets", "list watch get update")]
    limited = await account(client, configured.namespace, "limited", rules)
    async with Client(limited) as restricted, running(restricted, configured) as setup:
        await found(setup, "off: not allowed to list validatingwebhookconfigurations")
        assert setup.health.ok
    rules += [rule("admissionregistration.k8s.io", "validatingwebhookconfigurations", "list watch get update")]
    # As upstream's role: allowed to update the Secret of the manifests, not to create one.
    upstream = await account(client, configured.namespace, "upstream", rules)
    async with Client(upstream) as restricted, running(restricted, configured) as setup:
        await found(setup, "off: secrets is forbidden")
    logged = [record for record in caplog.records if "admission webhooks: off" in record.message]
    name = configured.names.configuration
    rejected = f"; while there is a ValidatingWebhookConfiguration {name}, the API server rejects jobs"
    assert [(record.levelname, rejected in record.message) for record in logged] == [("WARNING", True)] * 2


@pytest.mark.apiserver
async def test_a_missing_namespace_is_named_and_retried_with_backoff(
    control_plane: ControlPlane, client: Client, configured: WebhookEndpoint
) -> None:
    nowhere = replace(configured, namespace=f"{configured.namespace}-missing")
    attempts: list[float] = []

    def count(seen: RequestResult) -> None:
        if seen.method == "POST" and seen.request.path.endswith("/secrets"):
            attempts.append(asyncio.get_running_loop().time())

    async with Client(control_plane.config, observe=count) as watched, running(watched, nowhere) as setup:
        await found(setup, f'certificates are not ready: namespaces "{nowhere.namespace}" not found')
        assert not setup.health.ok

        async def pauses() -> list[float]:
            return [after - before for before, after in pairwise(attempts)]

        longer = await eventually(pauses, lambda seen: len(seen) >= 3)
    assert longer[2] > 0.35


async def served(endpoint: WebhookEndpoint) -> str:
    """The server certificate that the webhooks present."""
    return await asyncio.to_thread(ssl.get_server_certificate, (endpoint.address.host, endpoint.address.port))


async def bundle(client: Client, endpoint: WebhookEndpoint) -> bytes:
    found = await client.get(VALIDATING_WEBHOOK_CONFIGURATIONS, endpoint.names.configuration)
    return base64.b64decode(found["webhooks"][0]["clientConfig"].get("caBundle", ""))


async def versions(client: Client, endpoint: WebhookEndpoint) -> list[str]:
    secret = await client.get(SECRETS, endpoint.names.secret, namespace=endpoint.namespace)
    found = await client.get(VALIDATING_WEBHOOK_CONFIGURATIONS, endpoint.names.configuration)
    return [one["metadata"]["resourceVersion"] for one in (secret, found)]
