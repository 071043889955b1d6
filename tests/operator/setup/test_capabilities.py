"""Discovery of capabilities: what the operator does without if the cluster does not allow it."""

import pytest

from tests.support.cluster.embedded_apiserver import running_embedded
from tests.support.kubernetes.service_accounts import account, rule
from trainwright.engine import Settings
from trainwright.kube.client.async_client import Client
from trainwright.objects.resources import NODES
from trainwright.operator.setup.capabilities import discover_capabilities


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
