"""The reflector: after any errors of lists and watches the store equals the server."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.background import in_background
from tests.support.servers.fake_apiserver import FakeApiServer
from tests.support.servers.scripted_server import answer, scripted_server, stream
from trainwright.kube.client import requests
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import Unreachable
from trainwright.kube.client.requests import Request, Response
from trainwright.kube.controller.reflector import Reflector
from trainwright.kube.controller.store import Store, raw_metadata
from trainwright.objects import Object
from trainwright.objects.metadata import ObjectMeta, View
from trainwright.objects.resources import CONFIG_MAPS

pytestmark = pytest.mark.looptime


class Reflected:
    """A reflector at work on a model server."""

    def __init__(self, server: FakeApiServer) -> None:
        self.server = server
        self.store: Store[Object] = Store()
        self.changes: list[tuple[str | None, str | None]] = []
        self.reflector = Reflector(
            server,
            CONFIG_MAPS,
            self.store,
            on_change=lambda before, after: self.changes.append((_version(before), _version(after))),
        )

    @property
    def names(self) -> set[str]:
        return {item["metadata"]["name"] for item in self.store.all()}

    async def settle(self, seconds: float = 60) -> None:
        """Lets fake time pass, enough for every pause."""
        await asyncio.sleep(seconds)


@asynccontextmanager
async def reflecting(server: FakeApiServer) -> AsyncIterator[Reflected]:
    reflected = Reflected(server)
    async with in_background(reflected.reflector.run()) as running:
        yield reflected
        assert not running.done()


async def test_it_lists_then_watches() -> None:
    server = FakeApiServer()
    server.write("a")
    async with reflecting(server) as reflected:
        await reflected.reflector.wait_for_sync()
        assert reflected.names == {"a"}
        await reflected.settle()
        server.write("b")
        server.write("a", data={"x": "y"})
        server.delete("b")
        await reflected.settle()
        assert reflected.store.get("n/a") == {**server.objects["a"], "apiVersion": "v1", "kind": "ConfigMap"}
        assert reflected.changes == [(None, "1"), (None, "2"), ("1", "3"), ("2", None)]
        assert (len(server.lists), len(server.watches)) == (1, 1)


async def test_relist_brings_what_the_watch_has_not_delivered() -> None:
    server = FakeApiServer()
    server.write("a")
    async with reflecting(server) as reflected:
        await reflected.settle()
        server.freeze_streams()
        server.write("b")
        server.delete("a")
        await reflected.settle()
        assert reflected.names == {"a"}
        await reflected.reflector.relist()
        assert reflected.names == {"b"}
        await reflected.settle()
        server.write("c")
        await reflected.settle()
        assert reflected.names == {"b", "c"}
        assert len(server.lists) == 2


async def test_relist_waits_for_an_unreachable_server() -> None:
    server = FakeApiServer()
    async with reflecting(server) as reflected:
        await reflected.settle()
        server.freeze_streams()
        server.failures.extend(Unreachable("cannot connect") for _ in range(12))
        refreshing = asyncio.create_task(reflected.reflector.relist())
        await reflected.settle()
        assert not refreshing.done()
        server.write("a")
        await refreshing
        assert reflected.names == {"a"}


async def test_relist_before_the_first_list_is_that_list() -> None:
    server = FakeApiServer()
    server.write("a")
    reflected = Reflected(server)
    refreshing = asyncio.create_task(reflected.reflector.relist())
    await reflected.settle()
    assert not refreshing.done()
    async with in_background(reflected.reflector.run()):
        await refreshing
    assert reflected.names == {"a"}


async def test_relist_ignores_a_list_that_was_requested_before() -> None:
    class Overtaken(FakeApiServer):
        """Something happens while its first answer is under way."""

        def __init__(self, meanwhile: Callable[[], None]) -> None:
            super().__init__()
            self._meanwhile = [meanwhile]

        async def send(self, request: Request) -> Response:
            answer = await super().send(request)
            while self._meanwhile:
                self._meanwhile.pop()()
                await asyncio.sleep(0)
            return answer

    refreshing: list[asyncio.Task[None]] = []

    def ask_for_more() -> None:
        server.write("b")
        refreshing.append(asyncio.create_task(reflected.reflector.relist()))

    server = Overtaken(ask_for_more)
    server.write("a")
    async with reflecting(server) as reflected:
        await reflected.reflector.wait_for_sync()
        await refreshing[0]
        assert reflected.names == {"a", "b"}


async def test_a_long_list_comes_in_pages() -> None:
    server = FakeApiServer()
    for number in range(1201):
        server.write(f"c{number}")
    async with reflecting(server) as reflected:
        await reflected.reflector.wait_for_sync()
        assert len(reflected.store) == 1201
        assert server.lists == [
            {"limit": "500"},
            {"limit": "500", "continue": "500"},
            {"limit": "500", "continue": "1000"},
        ]


async def test_a_stream_that_ends_or_breaks_is_resumed_where_it_was() -> None:
    server = FakeApiServer()
    async with reflecting(server) as reflected:
        await reflected.settle()
        server.write("a")
        await reflected.settle()
        server.end_streams()
        server.write("b")
        await reflected.settle()
        server.break_streams()
        server.delete("a")
        await reflected.settle()
        assert reflected.names == {"b"}
        assert [watch.get("resourceVersion") for watch in server.watches] == [None, "1", "2"]
        assert len(server.lists) == 1


async def test_bookmarks_move_the_place_to_resume_from() -> None:
    server = FakeApiServer()
    server.write("a")
    async with reflecting(server) as reflected:
        await reflected.settle()
        for _ in range(5):
            server.bookmark()
        server.compact()
        await reflected.settle()
        server.break_streams()
        server.write("b")
        await reflected.settle()
        assert server.watches[-1]["resourceVersion"] == "6"
        assert server.watches[-1]["allowWatchBookmarks"] == "true"
        assert reflected.names == {"a", "b"}
        assert len(server.lists) == 1


async def test_expired_version_leads_to_a_list_that_reports_missed_changes() -> None:
    server = FakeApiServer()
    for name in ("gone", "kept", "changed"):
        server.write(name)
    async with reflecting(server) as reflected:
        await reflected.settle()
        reflected.changes.clear()
        server.failures += [Unreachable("down")] * 3
        server.break_streams()
        server.delete("gone")
        server.write("changed")
        server.write("new")
        server.compact()
        await reflected.settle(120)
        assert reflected.names == {"kept", "changed", "new"}
        assert sorted(reflected.changes, key=str) == [("1", None), ("3", "5"), (None, "6")]


@pytest.mark.parametrize("code", [410, 504, 400])
async def test_watch_error_leads_to_a_new_list(code: int) -> None:
    server = FakeApiServer()
    server.write("a")
    async with reflecting(server) as reflected:
        await reflected.settle()
        server.failures.append(Response(code, {}, b""))
        server.end_streams()
        await reflected.settle()
        assert len(server.lists) == 2
        assert server.watching == 1


@pytest.mark.parametrize("code", [429, 503])
async def test_busy_server_is_not_listed_again(code: int) -> None:
    server = FakeApiServer()
    async with reflecting(server) as reflected:
        await reflected.settle()
        server.failures.append(Response(code, {}, b""))
        server.break_streams()
        await reflected.settle()
        assert (len(server.lists), server.watching) == (1, 1)


@pytest.mark.parametrize(("asked", "kept"), [("45", 45), ("60", 60), ("3600", 60)])
async def test_retry_after_is_honoured_up_to_a_minute(asked: str, kept: int) -> None:
    server = FakeApiServer()
    server.failures += [Response(429, {"retry-after": asked}, b"")] * 2
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with reflecting(server) as reflected:
        await reflected.reflector.wait_for_sync()
        assert 2 * kept < loop.time() - started < 2 * kept + 1
        await reflected.settle()
        server.break_streams()
        await reflected.settle(1)
        assert len(server.watches) == 2


async def test_pauses_grow_while_nothing_works_and_start_again_after_success(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeApiServer()
    loop = asyncio.get_running_loop()
    server.failures += [Unreachable("cannot connect")] * 12
    started = loop.time()
    async with reflecting(server) as reflected:
        await reflected.reflector.wait_for_sync()
        assert 60 < loop.time() - started < 200
        server.write("a")
        await reflected.settle()
        server.failures.append(Unreachable("cannot connect"))
        server.break_streams()
        broken, opened = loop.time(), len(server.watches)
        while len(server.watches) < opened + 2:
            await asyncio.sleep(0.01)
        assert loop.time() - broken < 0.2
    assert [record.message for record in caplog.records if "cannot connect" in record.message] == [
        "configmaps: cannot connect; trying again"
    ] * 2


async def test_a_server_that_closes_every_stream_at_once_is_not_flooded() -> None:
    server = FakeApiServer()
    async with reflecting(server) as reflected:
        await reflected.reflector.wait_for_sync()
        for _ in range(600):
            server.end_streams()
            await asyncio.sleep(0.1)
        assert len(server.watches) < 20


async def test_half_a_line_is_a_broken_stream() -> None:
    server = FakeApiServer()
    async with reflecting(server) as reflected:
        await reflected.settle()
        server.send_line(b'{"type":"ADDED","obj')
        server.write("a")
        await reflected.settle()
        assert reflected.names == {"a"}
        assert len(server.lists) == 1


async def test_an_event_of_an_unknown_type_is_not_swallowed(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeApiServer()
    async with reflecting(server) as reflected:
        await reflected.settle()
        server.send_line(b'{"type":"MOVED","object":{}}\n')
        await reflected.settle()
    assert "watch event of unknown type 'MOVED'" in caplog.text


@pytest.mark.parametrize("event", ['{"type":"BOOKMARK","object":{"metadata":3}}', '{"type":"ERROR","object":[]}'])
async def test_invalid_event_does_not_end_the_reflector(event: str, caplog: pytest.LogCaptureFixture) -> None:
    server = FakeApiServer()
    async with reflecting(server) as reflected:
        await reflected.settle()
        server.send_line(f"{event}\n".encode())
        await reflected.settle()
        server.write("a")
        await reflected.settle()
        assert reflected.names == {"a"}
    assert "trying again" in caplog.text


class ColorView(View, frozen=True):
    metadata: ObjectMeta
    color: int = 0


@pytest.mark.parametrize("convert", [ColorView, lambda obj: ColorView(metadata=raw_metadata(obj), color=obj["color"])])
async def test_views_are_made_directly_or_by_a_function(convert: Any) -> None:
    server = FakeApiServer()
    server.write("a", color=1)
    store: Store[ColorView] = Store()
    reflector = Reflector(server, CONFIG_MAPS, store, convert=convert)
    running = asyncio.create_task(reflector.run())
    await reflector.wait_for_sync()
    await asyncio.sleep(1)
    server.write("a", color=2)
    await asyncio.sleep(1)
    running.cancel()
    [view] = store.all()
    assert (view.metadata.name, view.metadata.resource_version, view.color) == ("a", "2", 2)


@pytest.mark.parametrize(
    "convert", [ColorView, lambda obj: ColorView(metadata=raw_metadata(obj), color=1 / obj["color"])]
)
async def test_an_object_that_cannot_be_read_does_not_hide_the_others(
    convert: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = FakeApiServer()
    server.write("bad", color="red")
    server.write("good", color=1)
    store: Store[ColorView] = Store()
    reflector = Reflector(server, CONFIG_MAPS, store, convert=convert)
    with caplog.at_level(logging.ERROR):
        running = asyncio.create_task(reflector.run())
        await reflector.wait_for_sync()
        await asyncio.sleep(1)
        server.write("bad", color="blue")
        server.write("good", color=2)
        await asyncio.sleep(1)
        running.cancel()
    assert [view.metadata.name for view in store.all()] == ["good"]
    assert store.last_version == "4"
    assert [record.message.partition(":")[0] for record in caplog.records] == ["cannot decode configmaps n/bad"] * 2


async def test_deleted_object_leaves_the_store_even_if_its_last_state_cannot_be_read() -> None:
    server = FakeApiServer()
    server.write("a", color=1)
    store: Store[ColorView] = Store()
    changes: list[tuple[ColorView | None, ColorView | None]] = []
    reflector = Reflector(
        server, CONFIG_MAPS, store, convert=ColorView, on_change=lambda before, after: changes.append((before, after))
    )
    async with in_background(reflector.run()):
        await asyncio.sleep(1)
        [view] = store.all()
        server.write("a", color="red")
        server.delete("a")
        await asyncio.sleep(1)
    assert store.all() == []
    assert store.last_version == "3"
    assert changes == [(None, view), (view, None)]


def _version(item: Object | None) -> str | None:
    return item["metadata"]["resourceVersion"] if item else None


_actions: dict[str, Callable[[FakeApiServer], object]] = {
    "write a": lambda server: server.write("a"),
    "write b": lambda server: server.write("b"),
    "delete a": lambda server: server.delete("a") if "a" in server.objects else None,
    "bookmark": lambda server: server.bookmark(),
    "compact": lambda server: server.compact(),
    "end": lambda server: server.end_streams(),
    "break": lambda server: server.break_streams(),
    "refuse": lambda server: server.failures.append(Response(500, {}, b"")),
    "disappear": lambda server: server.failures.append(Unreachable("gone")),
    "wait": lambda server: None,
}


@settings(max_examples=100)
@given(st.lists(st.sampled_from(sorted(_actions)), max_size=25))
async def test_store_equals_the_server_after_any_errors(actions: list[str]) -> None:
    server = FakeApiServer()
    async with reflecting(server) as reflected:
        for action in actions:
            _actions[action](server)
            await asyncio.sleep(0.05 if action != "wait" else 5)
        server.failures.clear()
        await reflected.settle(120)
        truth = {name: item["metadata"]["resourceVersion"] for name, item in server.objects.items()}
        held = {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in reflected.store.all()}
        assert held == truth


async def test_silent_watch_is_resumed_where_it_was(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeApiServer()
    async with reflecting(server) as reflected:
        await reflected.settle()
        server.write("a")
        await reflected.settle()
        server.time_out_streams("nothing came for 90 s")
        server.write("b")
        left = asyncio.get_running_loop().time()
        await reflected.settle(0.01)
        assert reflected.names == {"a", "b"}, asyncio.get_running_loop().time() - left
        assert [watch.get("resourceVersion") for watch in server.watches] == [None, "1"]
        assert len(server.lists) == 1
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.looptime(False)
async def test_dead_connection_is_detected_before_the_watch_times_out() -> None:
    empty = {"metadata": {"resourceVersion": "1"}, "items": []}
    added = requests.encode({"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "2"}}})
    async with scripted_server() as server, Client(server.config) as client:
        server.will(answer(empty), stream(then="hang"), stream(added + b"\n", then="hang"))
        store: Store[Object] = Store()
        reflector = Reflector(client, CONFIG_MAPS, store, read_timeout=0.5)
        async with in_background(reflector.run()), asyncio.timeout(60):
            while not len(store):
                await asyncio.sleep(0.01)
        first, second = (seen.target for seen in server.seen[1:3])
        assert "resourceVersion=1" in first
        assert "resourceVersion=1" in second
        assert int(first.partition("timeoutSeconds=")[2]) >= 300
