"""Events: what users read about an object, sent in order and counted instead of repeated."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from aiohttp import web

from tests.support.scriptedserver import ScriptedServer, answer, scripted_server
from trainwright.kube.client import Client
from trainwright.kube.recorder import Aggregator, EventRecorder, Occurrence, reference_to
from trainwright.objects import Object

NOW = datetime(2026, 11, 15, 4, 5, 6, tzinfo=UTC)
JOB: Object = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "mnist", "namespace": "train", "uid": "u1", "resourceVersion": "7", "labels": {}},
}


def happened(
    message: str = "Created pod: p", *, reason: str = "SuccessfulCreatePod", at: datetime = NOW, about: Object = JOB
) -> Occurrence:
    return Occurrence(reference_to(about), "Normal", reason, message, first=at, last=at)


def test_a_new_event_says_who_saw_what_happen_to_whom() -> None:
    event = Aggregator("pytorchjob-controller", "host-1", names=lambda: 0xABC).introduce(happened())
    assert event == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "mnist.abc", "namespace": "train"},
        "involvedObject": {
            "apiVersion": "kubeflow.org/v1",
            "kind": "PyTorchJob",
            "name": "mnist",
            "namespace": "train",
            "uid": "u1",
            "resourceVersion": "7",
        },
        "type": "Normal",
        "reason": "SuccessfulCreatePod",
        "message": "Created pod: p",
        "source": {"component": "pytorchjob-controller", "host": "host-1"},
        "reportingComponent": "pytorchjob-controller",
        "reportingInstance": "host-1",
        "firstTimestamp": "2026-11-15T04:05:06Z",
        "lastTimestamp": "2026-11-15T04:05:06Z",
        "count": 1,
    }


def test_events_about_the_whole_cluster_live_in_the_default_namespace() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "local"}}
    assert Aggregator("node").introduce(happened(about=node))["metadata"]["namespace"] == "default"


def test_no_two_events_share_a_name_even_if_the_clock_stands_still() -> None:
    aggregator = Aggregator("c", names=lambda: 10)
    names = {aggregator.introduce(happened(str(number)))["metadata"]["name"] for number in range(5)}
    assert len(names) == 5


def test_the_name_of_an_event_is_never_too_long() -> None:
    long = {**JOB, "metadata": {"name": "x" * 253, "namespace": "n"}}
    assert len(Aggregator("c").introduce(happened(about=long))["metadata"]["name"]) == 253


def test_what_happens_again_within_ten_minutes_is_counted() -> None:
    aggregator = Aggregator("c")
    name = aggregator.introduce(happened())["metadata"]["name"]
    again = aggregator.recall(happened(at=NOW + timedelta(minutes=9)))
    assert again
    assert (again.name, again.patch()) == (name, {"count": 2, "lastTimestamp": "2026-11-15T04:14:06Z"})
    later = aggregator.recall(happened(at=NOW + timedelta(minutes=18)))
    assert later
    assert later.count == 3
    assert aggregator.recall(happened(at=NOW + timedelta(minutes=29))) is None


@pytest.mark.parametrize(
    "other",
    [
        happened("Created pod: q"),
        happened(reason="FailedCreatePod"),
        happened(about={**JOB, "metadata": {**JOB["metadata"], "uid": "u2"}}),
        Occurrence(reference_to(JOB), "Warning", "SuccessfulCreatePod", "Created pod: p", first=NOW, last=NOW),
    ],
)
def test_only_what_is_identical_is_counted(other: Occurrence) -> None:
    aggregator = Aggregator("c")
    aggregator.introduce(happened())
    assert aggregator.recall(other) is None


def test_a_newer_version_of_the_object_is_the_same_object() -> None:
    aggregator = Aggregator("c")
    aggregator.introduce(happened())
    assert aggregator.recall(happened(about={**JOB, "metadata": {**JOB["metadata"], "resourceVersion": "9"}}))


def test_memory_is_bounded() -> None:
    aggregator = Aggregator("c")
    for number in range(5000):
        aggregator.introduce(happened(str(number)))
    assert aggregator.recall(happened("0")) is None
    assert aggregator.recall(happened("4999")) is not None


def test_a_reference_can_stand_for_the_object() -> None:
    reference = reference_to(JOB)
    assert reference_to(reference) == reference


# Over the wire


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as running:
        yield running


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


async def test_an_event_that_was_cleaned_up_is_created_anew(server: ScriptedServer, client: Client) -> None:
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
    assert [record.message for record in caplog.records if record.name == "trainwright.kube.recorder"] == [
        "event One of PyTorchJob train/mnist (first) is lost: namespace train is being terminated"
    ]


async def test_when_too_many_wait_the_newest_are_dropped_with_a_word(
    server: ScriptedServer, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    server.will(*[answer({}, status=201)] * 3)
    recorder = EventRecorder(client, "c", capacity=3)
    for number in range(10):
        recorder.record(JOB, "Normal", "Reason", str(number))
    await recorder.close()
    assert [body["message"] for _, body in sent(server)] == ["0", "1", "2"]
    assert "more than 3 events are waiting: dropping Reason of PyTorchJob train/mnist (3) and others" in caplog.text
    assert "7 events were dropped" in caplog.text


async def test_an_object_without_a_kind_does_not_fail_the_caller(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = EventRecorder(client, "c")
    with caplog.at_level(logging.ERROR):
        recorder.record({"metadata": {"name": "x"}}, "Normal", "Reason", "message")
    await recorder.close()
    assert "event Reason (message) is about an object without 'apiVersion'" in caplog.text


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
    assert "1 events could not be sent within 0.05 s" in caplog.text


def signalling(arrived: asyncio.Event) -> Callable[[web.BaseRequest, asyncio.Event], Awaitable[web.StreamResponse]]:
    async def give(_: web.BaseRequest, __: asyncio.Event) -> web.StreamResponse:
        arrived.set()
        return web.json_response({}, status=201)

    return give
