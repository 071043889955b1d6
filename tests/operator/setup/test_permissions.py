"""Access reviews on the real API server, on the embedded one and on one that fails."""

import pytest

from tests.support.cluster.embedded_apiserver import running_embedded
from tests.support.cluster.service_accounts import account, rule
from tests.support.servers.scripted_server import answer, scripted_server
from trainwright.kube.client.async_client import Client
from trainwright.objects.resources import NODES, PODS
from trainwright.operator.setup.permissions import is_allowed, is_watch_allowed


@pytest.mark.apiserver
async def test_the_review_is_about_the_clients_own_account(client: Client, real_namespace: str) -> None:
    config = await account(
        client, real_namespace, "reader", [rule("", "pods", "list watch"), rule("", "nodes", "list")]
    )
    async with Client(config) as reader:
        assert await is_allowed(reader, "list", PODS)
        assert await is_allowed(reader, "list", PODS, real_namespace)
        assert not await is_allowed(reader, "create", PODS, real_namespace)
        assert await is_watch_allowed(reader, PODS)
        assert await is_allowed(reader, "list", NODES)
        assert not await is_watch_allowed(reader, NODES)


async def test_on_the_embedded_cluster_everything_is_allowed() -> None:
    async with running_embedded() as embedded, Client(embedded.config) as client:
        assert await is_watch_allowed(client, NODES)
        assert await is_allowed(client, "create", PODS, "default")


async def test_a_failed_review_is_retried() -> None:
    async with scripted_server() as server, Client(server.config, retries=False) as client:
        server.will(
            answer({"kind": "Status", "code": 500, "message": "etcd is away"}, status=500),
            answer({"kind": "SelfSubjectAccessReview", "status": {"allowed": True}}, status=201),
        )
        assert await is_allowed(client, "list", NODES)
    assert len(server.seen) == 2


async def test_nothing_is_allowed_if_reviews_are_forbidden(caplog: pytest.LogCaptureFixture) -> None:
    async with scripted_server() as server, Client(server.config, retries=False) as client:
        server.will(answer({"kind": "Status", "code": 403, "message": "no questions"}, status=403))
        assert not await is_allowed(client, "list", NODES)
    assert "cannot review access to list nodes: no questions" in caplog.text
