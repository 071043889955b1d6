"""The event recorder: events are sent in order and counted instead of repeated."""

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.support.servers.scripted_server import ScriptedServer, answer
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.requests import Request, Response
from trainwright.kube.controller.event_recorder import COUNTING_SECONDS, EventRecorder
from trainwright.objects import Object

NOW = datetime(2026, 11, 15, 4, 5, 6, tzinfo=UTC)
JOB: Object = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "mnist", "namespace": "train", "uid": "u1", "resourceVersion": "7", "labels": {}},
}


class EventServer:
    """Keeps the Events that it gets, in fake time: every request takes a moment."""

    def __init__(self, *, seconds: float = 0.01) -> None:
        self.events: dict[str, Object] = {}
        self.writes: list[tuple[float, str, str]] = []
        self._seconds = seconds

    async def send(self, request: Request) -> Response:
        await asyncio.sleep(self._seconds)
        body: Object = msgspec.json.decode(request.body or b"")
        name = body["metadata"]["name"] if request.method == "POST" else request.path.rpartition("/")[2]
        if request.method == "POST" and name in self.events:
            return Response(409, {}, b'{"kind": "Status", "reason": "AlreadyExists", "code": 409}')
        self.events[name] = {**self.events.get(name, {}), **body}
        self.writes.append((asyncio.get_running_loop().time(), request.method, self.events[name]["message"]))
        return Response(200, {}, b"{}")

    def stream_lines(self, request: Request) -> AsyncGenerator[bytes, None]:
        raise NotImplementedError

    def counts(self) -> dict[str, int]:
        return {event["message"]: event["count"] for event in self.events.values()}


@pytest.mark.looptime
async def test_a_thousand_pods_cost_a_dozen_writes() -> None:
    server = EventServer()
    recorder = EventRecorder(server, "c")
    for number in range(1000):
        recorder.record(JOB, "Normal", "SuccessfulCreatePod", f"Created pod: {number}")
        recorder.record(JOB, "Normal", "SuccessfulCreateService", f"Created service: {number}")
        await asyncio.sleep(0.004)
    await recorder.close()
    assert len(server.writes) <= 2 * 13
    counts = server.counts()
    assert counts["(combined from similar events): Created pod: 999"] == 990
    assert sum(counts.values()) == 2000


@pytest.mark.looptime
async def test_a_new_event_waits_for_the_delay_and_not_when_the_recorder_is_closed() -> None:
    server = EventServer()
    recorder = EventRecorder(server, "c", delay=0.5)
    recorder.record(JOB, "Normal", "Created", "first")
    await asyncio.sleep(0.4)
    assert server.writes == []
    await asyncio.sleep(0.2)
    recorder.record(JOB, "Normal", "Created", "second")
    await recorder.close()
    ((first, _, _), (second, _, _)) = server.writes
    assert 0.5 <= first < 0.6 <= second < 0.7


@pytest.mark.looptime
async def test_count_is_written_at_once_and_then_every_few_seconds() -> None:
    server = EventServer()
    recorder = EventRecorder(server, "c")
    for _ in range(100):
        recorder.record(JOB, "Warning", "BackOff", "again")
        await asyncio.sleep(0.1)
    moments = [moment for moment, _, _ in server.writes]
    assert moments[0] == pytest.approx(0.01)
    assert len(moments) == 4
    assert all(later - earlier >= COUNTING_SECONDS for earlier, later in itertools.pairwise(moments))
    await asyncio.sleep(COUNTING_SECONDS)
    assert server.counts() == {"again": 100}
    await recorder.close()


@pytest.mark.looptime
async def test_delayed_count_does_not_delay_other_events_of_the_object() -> None:
    server = EventServer()
    recorder = EventRecorder(server, "c")
    recorder.record(JOB, "Warning", "BackOff", "again")
    await asyncio.sleep(1)
    recorder.record(JOB, "Warning", "BackOff", "again")
    recorder.record(JOB, "Normal", "Running", "all is well")
    await asyncio.sleep(0.5)
    assert [(method, message) for _, method, message in server.writes] == [("POST", "again"), ("POST", "all is well")]
    closing = asyncio.get_running_loop().time()
    await recorder.close()
    assert asyncio.get_running_loop().time() - closing < 0.1
    assert server.counts() == {"again": 2, "all is well": 1}


@pytest.mark.looptime
async def test_what_happens_during_a_write_is_counted_after_it() -> None:
    server = EventServer(seconds=1)
    recorder = EventRecorder(server, "c")
    for _ in range(5):
        recorder.record(JOB, "Warning", "BackOff", "again")
        await asyncio.sleep(0.5)
    await recorder.close()
    assert server.counts() == {"again": 5}


@pytest.mark.looptime
async def test_standing_event_is_one_event_of_all_processes(caplog: pytest.LogCaptureFixture) -> None:
    server = EventServer()
    for hour in range(3):
        recorder = EventRecorder(server, "c")
        recorder.record(JOB, "Warning", "InvalidAnnotation", "no number", at=NOW.replace(hour=hour), standing=True)
        await recorder.close()
    (event,) = server.events.values()
    assert (event["firstTimestamp"], event["lastTimestamp"]) == ("2026-11-15T00:05:06Z", "2026-11-15T02:05:06Z")
    assert event["count"] == 1
    assert [method for _, method, _ in server.writes] == ["POST", "PATCH", "PATCH"]
    assert caplog.messages == []


# Over the wire


@pytest.fixture
async def client(server: ScriptedServer) -> AsyncIterator[Client]:
    async with Client(server.config, retries=False) as client:
        yield client


def sent(server: ScriptedServer) -> list[tuple[str, Any]]:
    return [(seen.method, msgspec.json.decode(seen.body)) for seen in server.seen]


async def test_closing_sends_what_was_recorded_in_order(server: ScriptedServer, client: Client) -> None:
    server.will(*[answer({}, status=201)] * 20)
    recorder = EventRecorder(client, "c", clock=lambda: NOW)
    for number in range(10):
        recorder.record(JOB, "Normal", "Reason", f"message {number}")
    assert server.seen == []
    await recorder.close()
    assert [(method, body["message"]) for method, body in sent(server)] == [
        ("POST", f"message {number}") for number in range(10)
    ]
    assert {seen.target for seen in server.seen} == {"/api/v1/namespaces/train/events"}


async def test_repetitions_in_a_row_are_one_request(server: ScriptedServer, client: Client) -> None:
    server.will(answer({}, status=201))
    recorder = EventRecorder(client, "c")
    for _ in range(5):
        recorder.record(JOB, "Warning", "BackOff", "again")
    await recorder.close()
    [(method, event)] = sent(server)
    assert (method, event["count"]) == ("POST", 5)


async def test_a_repetition_of_a_sent_event_raises_its_count(server: ScriptedServer, client: Client) -> None:
    arrived = asyncio.Event()
    server.will(signalling(arrived), answer({}))
    recorder = EventRecorder(client, "c", clock=lambda: NOW)
    recorder.record(JOB, "Warning", "BackOff", "again")
    await arrived.wait()
    recorder.record(JOB, "Warning", "BackOff", "again")
    await recorder.close()
    created, patched = sent(server)
    assert patched == ("PATCH", {"count": 2, "lastTimestamp": "2026-11-15T04:05:06Z"})
    assert server.seen[1].target == f"/api/v1/namespaces/train/events/{created[1]['metadata']['name']}"


async def test_deleted_event_is_created_again(server: ScriptedServer, client: Client) -> None:
    arrived = asyncio.Event()
    gone = answer({"kind": "Status", "code": 404}, status=404)
    server.will(signalling(arrived), gone, answer({}, status=201))
    recorder = EventRecorder(client, "c")
    recorder.record(JOB, "Warning", "BackOff", "again")
    await arrived.wait()
    recorder.record(JOB, "Warning", "BackOff", "again")
    await recorder.close()
    assert [method for method, _ in sent(server)] == ["POST", "PATCH", "POST"]
    assert sent(server)[-1][1]["count"] == 1


async def test_a_refused_event_is_logged_and_the_next_one_is_sent(
    server: ScriptedServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    forbidden = {"kind": "Status", "code": 403, "message": "namespace train is being terminated"}
    server.will(answer(forbidden, status=403), answer({}, status=201))
    recorder = EventRecorder(client, "c")
    recorder.record(JOB, "Normal", "One", "first")
    recorder.record(JOB, "Normal", "Two", "second")
    await recorder.close()
    assert len(server.seen) == 2
    assert [
        record.message for record in caplog.records if record.name == "trainwright.kube.controller.event_recorder"
    ] == ["event One of PyTorchJob train/mnist (first) is dropped: namespace train is being terminated"]


async def test_name_conflict_of_an_occurrence_is_an_error(
    server: ScriptedServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    taken = {"kind": "Status", "code": 409, "reason": "AlreadyExists", "message": "there is one"}
    server.will(answer(taken, status=409))
    recorder = EventRecorder(client, "c")
    recorder.record(JOB, "Normal", "Reason", "message")
    await recorder.close()
    assert caplog.messages == ["event Reason of PyTorchJob train/mnist (message) is dropped: there is one"]


async def test_events_beyond_the_capacity_are_dropped_and_logged(
    server: ScriptedServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    server.will(*[answer({}, status=201)] * 3)
    recorder = EventRecorder(client, "c", capacity=3)
    for number in range(10):
        recorder.record(JOB, "Normal", "Reason", str(number))
    await recorder.close()
    assert [body["message"] for _, body in sent(server)] == ["0", "1", "2"]
    assert "more than 3 events are waiting: dropping Reason of PyTorchJob train/mnist (3) and others" in caplog.text
    assert "dropped events: 7" in caplog.text


@pytest.mark.looptime
async def test_number_of_dropped_events_is_logged_while_others_wait(caplog: pytest.LogCaptureFixture) -> None:
    server = EventServer(seconds=1)
    recorder = EventRecorder(server, "c", capacity=4)
    for name in ("a", "b"):
        for number in range(4):
            recorder.record(JOB, "Normal", name, str(number))
        await asyncio.sleep(2.5)
    assert [record.message for record in caplog.records] == [
        "more than 4 events are waiting: dropping b of PyTorchJob train/mnist (2) and others",
        "dropped events: 2",
    ]
    await recorder.close()


@pytest.mark.looptime
async def test_number_of_dropped_events_is_logged_on_close(caplog: pytest.LogCaptureFixture) -> None:
    recorder = EventRecorder(EventServer(seconds=3600), "c", capacity=2)
    for number in range(5):
        recorder.record(JOB, "Normal", "Reason", str(number))
    await recorder.close(timeout=1)
    assert [record.message for record in caplog.records][1:] == [
        "events not sent within 1 s: 2",
        "dropped events: 3",
    ]


async def test_events_after_close_are_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    recorder = EventRecorder(client, "c")
    await recorder.close()
    recorder.record(JOB, "Normal", "Reason", "message")
    assert caplog.messages == ["event Reason of PyTorchJob train/mnist (message) is dropped: the recorder is closed"]


async def test_an_object_without_a_kind_does_not_fail_the_caller(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = EventRecorder(client, "c")
    with caplog.at_level(logging.ERROR):
        recorder.record({"metadata": {"name": "x"}}, "Normal", "Reason", "message")
    await recorder.close()
    assert "event Reason (message): its object has no 'apiVersion'" in caplog.text


async def test_closing_does_not_wait_for_ever(
    server: ScriptedServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    async def hang(_: web.BaseRequest, over: asyncio.Event) -> web.StreamResponse:
        await over.wait()
        return web.Response()

    server.will(hang)
    recorder = EventRecorder(client, "c")
    recorder.record(JOB, "Normal", "Reason", "message")
    await recorder.close(timeout=0.05)
    assert "events not sent within 0.05 s: 1" in caplog.text


def signalling(arrived: asyncio.Event) -> Callable[[web.BaseRequest, asyncio.Event], Awaitable[web.StreamResponse]]:
    async def give(_: web.BaseRequest, __: asyncio.Event) -> web.StreamResponse:
        arrived.set()
        return web.json_response({}, status=201)

    return give
