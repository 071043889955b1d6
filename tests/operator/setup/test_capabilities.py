"""What the operator finds out about its cluster at start: errors if it cannot run there, what it does without."""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from tests.support.cluster.embedded_apiserver import running_embedded
from tests.support.kubernetes.controlplane import ControlPlane
from tests.support.kubernetes.service_accounts import account, rule
from tests.support.servers.scripted_server import answer, scripted_server
from tests.support.waiting import eventually
from trainwright.api.kinds import PYTORCH, Kind
from trainwright.engine import Settings
from trainwright.kube.client.async_client import Client
from trainwright.objects.resources import AUTOSCALERS, CUSTOM_RESOURCE_DEFINITIONS, NODES
from trainwright.operator.options import OperatorError, OperatorOptions
from trainwright.operator.setup.capabilities import discover_capabilities, prepare

_numbers = itertools.count(1)


@pytest.fixture
def absent() -> dict[str, Kind]:
    """A kind that no API server serves, another one for each test."""
    number = next(_numbers)
    return {"AbsentJob": replace(PYTORCH, name=f"AbsentJob{number}", plural=f"absentjobs{number}")}


@pytest.mark.apiserver
async def test_an_account_that_is_allowed_everything_has_all_capabilities(client: Client) -> None:
    seen = await discover_capabilities(client, Settings())
    assert seen.settings == Settings()
    assert seen.cluster_resources == [NODES]


@pytest.mark.apiserver
async def test_missing_permissions_turn_features_off_with_a_warning(
    client: Client, real_namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = await account(client, real_namespace, "pods-alone", [rule("", "pods", "list watch")])
    async with Client(config) as restricted:
        seen = await discover_capabilities(restricted, Settings())
    assert not seen.settings.autoscaling
    assert seen.cluster_resources == []
    assert "horizontalpodautoscalers.autoscaling: spec.elasticPolicy.metrics has no effect" in caplog.text
    assert "not allowed to list nodes: pods on lost nodes are not replaced" in caplog.text


async def test_without_autoscalers_in_the_cluster_autoscaling_is_off() -> None:
    async with running_embedded() as embedded, Client(embedded.config) as client:
        assert not (await discover_capabilities(client, Settings())).settings.autoscaling


@pytest.mark.apiserver
async def test_missing_crds_end_it_with_the_ways_to_install_them(
    control_plane: ControlPlane, absent: dict[str, Kind]
) -> None:
    (kind,) = absent.values()
    with pytest.raises(OperatorError) as error:
        await prepare(control_plane.config, absent, OperatorOptions())
    message = str(error.value)
    assert f"does not serve {kind.plural}.kubeflow.org" in message
    assert "`trainwright operator --install-crds`" in message
    assert "`trainwright crds | kubectl apply -f -`" in message
    assert "\n" not in message


@pytest.mark.apiserver
async def test_crds_are_installed_and_updated_on_demand(control_plane: ControlPlane, absent: dict[str, Kind]) -> None:
    (kind,) = absent.values()
    name = kind.resource.qualified_plural
    options = OperatorOptions(install_crds=True)
    async with Client(control_plane.config) as client:
        await prepare(control_plane.config, absent, options)
        assert (await client.list(kind.resource)).items == []

        label = {"app.kubernetes.io/managed-by": "Helm"}
        old = {"metadata": {"labels": label}, "spec": {"names": {"shortNames": ["old"]}}}
        await client.patch(CUSTOM_RESOURCE_DEFINITIONS, name, old)
        await prepare(control_plane.config, absent, options)
        renewed = await client.get(CUSTOM_RESOURCE_DEFINITIONS, name)
        assert "shortNames" not in renewed["spec"]["names"]
        assert renewed["metadata"]["labels"] == label
        await client.delete(CUSTOM_RESOURCE_DEFINITIONS, name)


@pytest.mark.apiserver
async def test_a_wrong_token_ends_it(control_plane: ControlPlane) -> None:
    unknown = replace(control_plane.config, token="wrong")
    with pytest.raises(OperatorError, match=r"rejects the operator: Unauthorized; the credentials .* are wrong"):
        await prepare(unknown, {PYTORCH.name: PYTORCH}, OperatorOptions())


@pytest.mark.apiserver
@pytest.mark.parametrize(
    ("install_crds", "message"),
    [
        (False, 'cannot list resource "pytorchjobs".*; add that rule to the operator.s role$'),
        (True, r'cannot create resource "customresourcedefinitions".*`trainwright crds \| kubectl apply -f -`$'),
    ],
)
async def test_a_missing_permission_ends_it_with_a_hint(
    control_plane: ControlPlane, real_namespace: str, install_crds: bool, message: str
) -> None:
    async with Client(control_plane.config) as client:
        config = await account(client, real_namespace, "powerless", [])
    with pytest.raises(OperatorError, match=message):
        await prepare(config, {PYTORCH.name: PYTORCH}, OperatorOptions(install_crds=install_crds))


@pytest.mark.apiserver
async def test_an_untrusted_certificate_ends_it(control_plane: ControlPlane) -> None:
    trusting_others = replace(control_plane.config, ca_data=None)
    with pytest.raises(OperatorError, match=r"cannot trust the certificate of https://.*certificate-authority"):
        await prepare(trusting_others, {PYTORCH.name: PYTORCH}, OperatorOptions())


async def test_a_list_that_expired_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted_server() as server:
        server.will(
            answer({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}, status=410),
            answer({"kind": "Status", "code": 401, "message": "Unauthorized"}, status=401),
        )
        with pytest.raises(OperatorError, match="rejects the operator: Unauthorized"):
            await prepare(server.config, {PYTORCH.name: PYTORCH}, OperatorOptions())
        assert len(server.seen) == 2
    assert "retrying in 0.5 s: too old" in caplog.text


async def test_a_lost_response_repeats_only_its_own_request() -> None:
    unavailable = answer({"kind": "Status", "code": 503, "message": "busy"}, status=503)
    allowed = answer({"kind": "SelfSubjectAccessReview", "status": {"allowed": True}}, status=201)
    async with scripted_server() as server:
        jobs, schema, autoscalers = answer({"items": []}), answer({"components": {}}), answer({"items": []})
        server.will(unavailable, jobs, schema, allowed, allowed, unavailable, allowed, allowed, autoscalers)
        server.will(allowed, allowed)
        found = await prepare(server.config, {PYTORCH.name: PYTORCH}, OperatorOptions())
        asked = [urlsplit(one.target).path for one in server.seen]
    assert (found.settings.autoscaling, list(found.cluster_resources)) == (True, [NODES])
    assert asked.count(PYTORCH.resource.path()) == 2
    assert asked.count(AUTOSCALERS.path()) == 2


@pytest.mark.apiserver
async def test_an_api_server_that_is_not_up_yet_is_waited_for(
    control_plane: ControlPlane, absent: dict[str, Kind], unused_tcp_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    server = f"https://127.0.0.1:{unused_tcp_port}"
    with caplog.at_level(logging.WARNING):
        preparing = asyncio.create_task(
            prepare(replace(control_plane.config, server=server), absent, OperatorOptions())
        )

        async def logged() -> str:
            return caplog.text

        seen = await eventually(logged, lambda text: "retrying" in text)
    assert f"{server} is not available, retrying in 0.5 s" in seen

    async with relay(unused_tcp_port, urlsplit(control_plane.config.server).port or 0):
        with pytest.raises(OperatorError, match="does not serve"):
            await preparing


@asynccontextmanager
async def relay(port: int, target: int) -> AsyncIterator[None]:
    """Passes connections on to another port of this machine."""
    connections: set[asyncio.Task[None]] = set()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", target)
        for task in (asyncio.create_task(copy(reader, back)), asyncio.create_task(copy(there, writer))):
            connections.add(task)

    listening = await asyncio.start_server(connect, "127.0.0.1", port)
    try:
        yield
    finally:
        listening.close()
        await asyncio.gather(*connections, return_exceptions=True)
