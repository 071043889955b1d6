"""Access reviews on the real API server, on the embedded one and on one that fails."""

import pytest

from tests.support.cluster.embedded_apiserver import running_embedded
from tests.support.kubernetes.service_accounts import account, rule
from tests.support.servers.scripted_server import answer, scripted_server
from trainwright.kube.client.async_client import Client
from trainwright.objects.resources import NODES, PODS
from trainwright.operator.rbac import Rule
from trainwright.operator.setup.permissions import is_allowed, is_watch_allowed, missing_permissions


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


@pytest.mark.apiserver
async def test_every_missing_verb_is_named_with_its_reason(client: Client, real_namespace: str) -> None:
    config = await account(client, real_namespace, "reader", [], own_rules=[rule("", "pods", "list")])
    rules = [
        Rule(PODS, ("list", "watch"), "cache pods"),
        Rule(PODS, ("create",), "grant it", "exec"),
        Rule(NODES, ("list",), "detect lost nodes"),
    ]
    async with Client(config) as reader:
        lines = await missing_permissions(reader, rules, lambda one: real_namespace if one.resource == PODS else None)

    advice = "add it to the operator's role"
    assert lines == [
        f"not allowed to watch pods in namespace {real_namespace}, which is needed to cache pods; {advice}",
        f"not allowed to create pods/exec in namespace {real_namespace}, which is needed to grant it; {advice}",
        f"not allowed to list nodes, which is needed to detect lost nodes; {advice}",
    ]


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
