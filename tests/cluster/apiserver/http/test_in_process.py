"""A client in the process of the API server gets the answers that it would get over the network."""

import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster.embedded_apiserver import Embedded, running_embedded
from tests.support.objects.manifests import config_map
from tests.support.waiting import eventually
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, ApiError, NotFound, Unauthorized
from trainwright.kube.client.responses import WatchEvent
from trainwright.objects.resources import CONFIG_MAPS


@pytest.fixture
async def embedded() -> AsyncIterator[Embedded]:
    async with running_embedded() as running:
        yield running


@pytest.fixture
async def near(embedded: Embedded) -> AsyncIterator[Client]:
    async with Client(embedded.config, user_agent="near", server=embedded.server) as client:
        yield client


@pytest.fixture
async def far(embedded: Embedded) -> AsyncIterator[Client]:
    async with Client(embedded.config, user_agent="far") as client:
        yield client


async def test_objects_are_the_same_over_both_ways(near: Client, far: Client) -> None:
    await near.create(CONFIG_MAPS, config_map("a.b"), namespace="default")
    patched = await near.patch(CONFIG_MAPS, "a.b", {"data": {"key": "new"}}, namespace="default")

    assert await far.get(CONFIG_MAPS, "a.b", namespace="default") == patched
    assert await near.list(CONFIG_MAPS) == await far.list(CONFIG_MAPS)


async def test_errors_are_the_same_over_both_ways(near: Client, far: Client) -> None:
    await near.create(CONFIG_MAPS, config_map("a"), namespace="default")
    texts = []
    for client in (near, far):
        with pytest.raises(AlreadyExists) as exists:
            await client.create(CONFIG_MAPS, config_map("a"), namespace="default")
        with pytest.raises(NotFound) as missing:
            await client.get(CONFIG_MAPS, "none", namespace="default")
        texts.append([str(error.value) for error in (exists, missing)])
    assert texts[0] == texts[1]


async def test_a_refused_write_whose_client_has_gone_leaves_no_error_behind(tmp_path: Path) -> None:
    left_behind: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: left_behind.append(context))
    async with (
        running_embedded(tmp_path / "store") as embedded,
        Client(embedded.config, server=embedded.server) as near,
    ):
        for turns in range(8):
            first, second = (
                asyncio.create_task(near.create(CONFIG_MAPS, config_map(f"a{turns}"), namespace="default"))
                for _ in range(2)
            )
            for _ in range(turns):
                await asyncio.sleep(0)
            second.cancel()
            await asyncio.wait([first, second])
    gc.collect()
    assert left_behind == []


async def test_a_body_that_is_too_large_is_refused(near: Client) -> None:
    with pytest.raises(ApiError, match="limit is 3145728"):
        await near.create(CONFIG_MAPS, config_map("large", {"a": "x" * 4_000_000}), namespace="default")


async def test_a_wrong_token_is_refused(embedded: Embedded) -> None:
    async with Client(replace(embedded.config, token="wrong"), server=embedded.server) as client:
        with pytest.raises(Unauthorized):
            await client.list(CONFIG_MAPS)


async def test_watch_sees_changes_and_ends_with_the_server(embedded: Embedded, near: Client) -> None:
    seen: list[WatchEvent] = []

    async def follow() -> None:
        async for event in near.watch(CONFIG_MAPS, namespace="default"):
            seen.append(event)  # noqa: PERF401 (the test reads it meanwhile)

    following = asyncio.create_task(follow())
    await near.create(CONFIG_MAPS, config_map("a"), namespace="default")

    async def names() -> list[str]:
        return [event.object["metadata"]["name"] for event in seen]

    await eventually(names, lambda found: "a" in found)
    await embedded.server.stop()
    await asyncio.wait_for(following, 60)


async def test_many_reads_in_a_row_let_other_tasks_run(near: Client) -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    for _ in range(10):
        await near.list(CONFIG_MAPS)
    task.cancel()
    assert turns >= 10
