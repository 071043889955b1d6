"""What an installation allows decides what the operator does without."""

import pytest

from tests.support.cluster.embedded_apiserver import running_embedded
from tests.support.cluster.service_accounts import account, rule
from trainwright.engine import Settings
from trainwright.kube.client.async_client import Client
from trainwright.objects.resources import NODES
from trainwright.operator.setup.capabilities import discover_capabilities


@pytest.mark.apiserver
async def test_an_account_with_all_rights_sees_everything(client: Client) -> None:
    seen = await discover_capabilities(client, Settings())
    assert seen.settings == Settings()
    assert seen.cluster_resources == [NODES]


@pytest.mark.apiserver
async def test_what_may_not_be_seen_is_done_without_and_told(
    client: Client, real_namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = await account(client, real_namespace, "pods-alone", [rule("", "pods", "list watch")])
    async with Client(config) as poor:
        seen = await discover_capabilities(poor, Settings())
    assert not seen.settings.autoscaling
    assert seen.cluster_resources == []
    assert "horizontalpodautoscalers.autoscaling: spec.elasticPolicy.metrics has no effect" in caplog.text
    assert "not allowed to list nodes: pods on nodes that are gone are not replaced" in caplog.text


async def test_a_cluster_without_autoscalers_is_no_error() -> None:
    async with running_embedded() as embedded, Client(embedded.config) as client:
        assert not (await discover_capabilities(client, Settings())).settings.autoscaling
