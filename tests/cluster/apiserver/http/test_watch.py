"""One watcher without a network: selectors, slow readers, bookmarks, old versions."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.cluster.addresses import SERVICES
from tests.support.cluster.embedded_apiserver import TOKEN, RecordedLogs
from trainwright.cluster.apiserver.access.access_control import AccessControl
from trainwright.cluster.apiserver.http import watch as watch_module
from trainwright.cluster.apiserver.http.requests import ApiRequest, ResourceInfo, read_selectors
from trainwright.cluster.apiserver.http.responses import Representation, StreamingResponse
from trainwright.cluster.apiserver.http.routes import Routes, ServedCluster
from trainwright.cluster.apiserver.http.watch import Watch, WatchOptions
from trainwright.cluster.apiserver.resources.registry import Registry
from trainwright.cluster.apiserver.storage import store as store_module
from trainwright.cluster.apiserver.storage.store import ObjectStore
from trainwright.objects.resources import CONFIG_MAPS

KIND = Registry().of(CONFIG_MAPS)


def watch(store: ObjectStore, version: int | None = None, **options: Any) -> Watch:
    selection = read_selectors(options.pop("query", {}), KIND)
    chosen = WatchOptions(
        version, options.pop("namespace", None), selection, options.pop("representation", Representation()), **options
    )
    return Watch(store, KIND, chosen, lambda: datetime(2026, 1, 1, tzinfo=UTC))


async def put(store: ObjectStore, name: str, value: int = 0, namespace: str = "ns") -> None:
    obj = {"metadata": {"name": name, "namespace": namespace}, "data": {"value": str(value)}}
    await store.guaranteed_update("configmaps", namespace, name, lambda _old: obj)


async def events(stream: AsyncIterator[bytes], count: int) -> list[dict[str, Any]]:
    lines: list[bytes] = []
    async for chunk in stream:
        lines += chunk.splitlines()
        if len(lines) >= count:
            break
    return [json.loads(line) for line in lines]


async def test_no_event_is_lost_or_repeated_between_list_and_watch() -> None:
    store = ObjectStore(None)
    await put(store, "a", 1)
    version = store.version
    await put(store, "a", 2)
    watcher = watch(store, version)
    await put(store, "a", 3)
    stream = watcher.lines()
    seen = await events(stream, 2)
    assert [event["object"]["data"]["value"] for event in seen] == ["2", "3"]
    await stream.aclose()


async def test_initial_state_is_sent_once() -> None:
    store = ObjectStore(None)
    await put(store, "a", 1)
    watcher = watch(store)
    await put(store, "a", 2)
    stream = watcher.lines()
    assert [event["object"]["data"]["value"] for event in await events(stream, 1)] == ["2"]
    await put(store, "a", 3)
    assert [(e["type"], e["object"]["data"]["value"]) for e in await events(stream, 1)] == [("MODIFIED", "3")]
    await stream.aclose()


async def test_watch_from_a_too_old_version_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "WATCH_CACHE_SIZE", 2)
    store = ObjectStore(None)
    start = store.version
    for value in range(4):
        await put(store, "a", value)
    (event,) = [json.loads(line) async for line in watch(store, start).lines()]
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    assert event["object"]["message"] == f"too old resource version: {start} ({store.version})"


async def test_slow_watcher_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "BUFFER_SIZE", 3)
    store = ObjectStore(None)
    watcher = watch(store, store.version)
    for value in range(5):
        await put(store, "a", value)
    (event,) = [json.loads(line) async for line in watcher.lines()]
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)


async def test_events_of_other_namespaces_are_not_sent() -> None:
    store = ObjectStore(None)
    watcher = watch(store, store.version, namespace="ns")
    await put(store, "a", namespace="other")
    await put(store, "b")
    stream = watcher.lines()
    assert [event["object"]["metadata"]["name"] for event in await events(stream, 1)] == ["b"]
    await stream.aclose()


@pytest.mark.looptime
async def test_bookmarks_are_sent_every_minute_and_at_the_end() -> None:
    store = ObjectStore(None)
    watcher = watch(store, store.version, bookmarks=True, timeout=90)
    await put(store, "a", namespace="elsewhere")
    loop = asyncio.get_running_loop()
    start = loop.time()
    seen = []
    async for chunk in watcher.lines():
        seen += [(json.loads(line)["type"], loop.time() - start) for line in chunk.splitlines()]
    assert [kind for kind, _ in seen] == ["ADDED", "BOOKMARK", "BOOKMARK"]
    assert [round(when) for _, when in seen] == [0, 60, 90]


async def test_every_watcher_gets_the_same_bytes() -> None:
    store = ObjectStore(None)
    first, second = (watch(store, store.version) for _ in range(2))
    await put(store, "a")
    one, two = first.lines(), second.lines()
    assert await anext(one) is await anext(two)
    await one.aclose()
    await two.aclose()


async def test_watch_is_released_if_its_client_disconnects_before_the_first_line() -> None:
    store, now = ObjectStore(None), datetime(2026, 1, 1, tzinfo=UTC)
    cluster = ServedCluster(store, RecordedLogs(), SERVICES, clock=lambda: now)
    routes = Routes(cluster, AccessControl(store, TOKEN))
    stream = routes.handle_get(ApiRequest(ResourceInfo(KIND), "watch", now))
    assert isinstance(stream, StreamingResponse)
    before = watches_of(store)
    await stream.close()
    del stream
    assert (len(before), watches_of(store)) == (1, [])


def watches_of(store: ObjectStore) -> list[int]:
    """The watches that are still referenced; each would receive every later change."""
    gc.collect()
    return [id(one) for one in gc.get_objects() if type(one) is Watch and store in gc.get_referents(one)]
