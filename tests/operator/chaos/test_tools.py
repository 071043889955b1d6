"""The fault proxy, the pod invariants and the scripted jobs work: otherwise the chaos tests would prove nothing."""

import asyncio
import gc
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path

import aiohttp
import pytest
import yarl
from hypothesis import given
from hypothesis import strategies as st

from tests.support.chaos.extra_objects import ExtraObjectInvariants
from tests.support.chaos.pod_invariants import PodInvariants
from tests.support.chaos.scripted_jobs import SCRIPTED_KINDS, scripted_jobs
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.servers.faults import LOST, STATUS_CODES, STREAM, Choice, Fault, FaultScript, Verb, verb_of
from tests.support.servers.scripted_server import answer, scripted_server, stream
from trainwright.objects import Object
from trainwright.objects.resources import CONFIG_MAPS

ANSWER = {"kind": "Pod", "metadata": {"name": "one"}}
EVENTS = tuple(b'{"type":"ADDED","object":{"number":%d}}\n' % number for number in range(3))


class Always(FaultScript):
    """One fault for every request, with its stream broken after one event."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(0, rate=1)
        self._only = fault

    def choose(self, method: str, path: str, query: str) -> Choice:
        return Choice(self._only, after=1, share=0.5)


async def through(fault: Fault, tmp_path: Path, *, watch: bool = False, limit: int = 1) -> tuple[str, int, FaultProxy]:
    """The status and body of one request, or the error; and the number of requests that the server got."""
    async with scripted_server() as server:
        server.will(stream(*EVENTS) if watch else answer(ANSWER))
        proxy = FaultProxy(server.config, Always(fault), limit=limit, hang_seconds=0.01)
        async with proxy.running(tmp_path / "proxy"), aiohttp.ClientSession() as session:
            method, target = ("GET", "/api/v1/pods?watch=true") if watch else ("POST", "/api/v1/namespaces/n/pods")
            try:
                async with session.request(method, proxy.url + target, ssl=False) as found:
                    text = f"{found.status} {(await found.read()).decode()}"
            except aiohttp.ClientError as error:
                text = type(error).__name__
        return text, len(server.seen), proxy


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault not in STREAM])
async def test_a_write_is_carried_out_only_if_the_fault_loses_the_answer(fault: Fault, tmp_path: Path) -> None:
    text, seen, proxy = await through(fault, tmp_path)
    assert seen == (1 if fault in LOST else 0)
    if fault in STATUS_CODES:
        assert text.startswith(f"{STATUS_CODES[fault]} ")
        assert fault in text
    else:
        assert text in {"ServerDisconnectedError", "ClientPayloadError", "ClientOSError"}
    assert proxy.counts == {fault: 1}


@pytest.mark.parametrize("fault", sorted(STREAM))
async def test_a_stream_is_unchanged_up_to_its_fault(fault: Fault, tmp_path: Path) -> None:
    text, seen, proxy = await through(fault, tmp_path, watch=True)
    whole = "200 " + b"".join(EVENTS).decode()
    match fault:
        case Fault.STALE | Fault.DRIP:
            assert text == whole
        case Fault.EXPIRED_EVENT | Fault.INTERNAL_EVENT:
            assert text.startswith("200 " + EVENTS[0].decode() + '{"type":"ERROR"')
        case Fault.END:
            assert text == "200 " + EVENTS[0].decode()
        case _:
            assert text == "ClientPayloadError"
    assert (seen, proxy.counts) == (1, {fault: 1})


async def test_a_proxy_at_its_limit_injects_no_more_faults(tmp_path: Path) -> None:
    text, seen, proxy = await through(Fault.CONFLICT, tmp_path, limit=0)
    assert text.startswith("200 ")
    assert (seen, proxy.injected) == (1, [])


@pytest.mark.parametrize("rounds", range(6))
async def test_the_proxy_closes_all_connections_even_during_the_handshake(tmp_path: Path, rounds: int) -> None:
    async with scripted_server() as server:
        proxy = FaultProxy(server.config, Always(Fault.RESET), limit=1, hang_seconds=0.01)
        async with proxy.running(tmp_path / "proxy"):
            clients: list[socket.socket] = []
            for disturb in (partial(proxy.outage, 0), partial(asyncio.sleep, 0)):
                clients += [socket.create_connection(("127.0.0.1", yarl.URL(proxy.url).port or 0)) for _ in range(3)]
                for _ in range(rounds):
                    await asyncio.sleep(0)
                await disturb()
        for client in clients:
            client.settimeout(5)
            with suppress(ConnectionResetError):
                assert client.recv(1) == b""
            client.close()
    gc.collect()  # an unclosed socket raises a ResourceWarning


@pytest.mark.parametrize(
    ("method", "target", "verb"),
    [
        ("GET", "/api/v1/pods", Verb.LIST),
        ("GET", "/api/v1/namespaces", Verb.LIST),
        ("GET", "/api/v1/namespaces/team", Verb.GET),
        ("GET", "/api/v1/namespaces/team/pods", Verb.LIST),
        ("GET", "/api/v1/namespaces/team/pods/one", Verb.GET),
        ("GET", "/apis/kubeflow.org/v1/pytorchjobs?watch=true", Verb.WATCH),
        ("GET", "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/one/status", Verb.GET),
        ("PUT", "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/one/status", Verb.WRITE),
    ],
)
def test_the_verb_of_a_request(method: str, target: str, verb: Verb) -> None:
    path, _, query = target.partition("?")
    assert verb_of(method, path, query) is verb


@given(st.integers(), st.lists(st.sampled_from(["/api/v1/pods", "/api/v1/pods/a", "/api/v1/pods/b"])))
def test_a_choice_does_not_depend_on_other_requests(seed: int, paths: list[str]) -> None:
    def choices(order: list[str]) -> dict[str, list[Choice | None]]:
        script = FaultScript(seed, rate=0.5)
        found: dict[str, list[Choice | None]] = {}
        for path in order:
            found.setdefault(path, []).append(script.choose("PUT", path, ""))
        return found

    assert choices(paths) == choices(sorted(paths))


def test_a_choice_does_not_depend_on_the_name_of_the_namespace() -> None:
    def choices(namespace: str) -> list[Choice | None]:
        script = FaultScript(4, rate=0.5)
        return [script.choose("PUT", f"/api/v1/namespaces/{namespace}/pods/one", "") for _ in range(20)]

    assert choices("test-1") == choices("test-42")


def test_every_fault_is_chosen_eventually() -> None:
    script = FaultScript(1, rate=0.5)
    requests = [("PUT", ""), ("GET", ""), ("GET", "watch=1")] * 3000
    choices = [script.choose(method, "/api/v1/pods", query) for method, query in requests]
    assert {choice.fault for choice in choices if choice} == set(Fault)


def pod(uid: str, phase: str = "Running", index: int = 0) -> Object:
    labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": str(index)}
    owner = {"name": "digits", "uid": "job", "controller": True}
    metadata = {"name": f"digits-worker-{index}", "uid": uid, "labels": labels, "ownerReferences": [owner]}
    return {"metadata": metadata, "status": {"phase": phase}}


def violations(*events: tuple[str, Object]) -> list[str]:
    invariants = PodInvariants()
    for kind, one in events:
        invariants.observe(kind, one)
    return invariants.violations


def test_two_live_pods_of_one_rank_are_a_violation() -> None:
    assert violations(("ADDED", pod("a")), ("ADDED", pod("b"))) == ["digits worker 0 has 2 live pods at the same time"]
    assert violations(("ADDED", pod("a")), ("ADDED", pod("b", index=1))) == []
    assert violations(("ADDED", pod("a")), ("MODIFIED", pod("a", "Failed")), ("ADDED", pod("b"))) == []
    assert violations(("ADDED", pod("a")), ("DELETED", pod("a")), ("ADDED", pod("b"))) == []


def test_a_succeeded_rank_that_starts_again_is_a_violation() -> None:
    ended = (("ADDED", pod("a")), ("MODIFIED", pod("a", "Succeeded")), ("DELETED", pod("a", "Succeeded")))
    assert violations(*ended) == []
    assert violations(*ended, ("ADDED", pod("b"))) == ["digits worker 0 had succeeded and was started again"]


def test_scripted_jobs_have_counted_and_uncounted_failures_and_succeed() -> None:
    jobs = scripted_jobs(4, 50, steps=range(10))
    assert jobs == scripted_jobs(4, 50, steps=range(10))
    assert {job.kind for job in jobs} == set(SCRIPTED_KINDS)
    scripts = [ends for job in jobs for ends in job.ends.values()]
    assert all(not ends[-1].exit_code and all(end.exit_code for end in ends[:-1]) for ends in scripts)
    counted = sum(sum(job.restarts.values()) for job in jobs)
    assert 0 < counted < sum(job.replacements for job in jobs)


def extra_violations(event: str, *, owner: str | None) -> list[str]:
    invariants = ExtraObjectInvariants()
    owners = [{"name": owner, "controller": True}] if owner else []
    metadata = {"name": "digits-config", "labels": {"training.kubeflow.org/job-name": "digits"}}
    invariants.observe(CONFIG_MAPS, event, {"metadata": {**metadata, "ownerReferences": owners}})
    return invariants.violations


@pytest.mark.parametrize("event", ["MODIFIED", "DELETED"])
def test_a_change_of_an_object_of_others_is_a_violation(event: str) -> None:
    assert extra_violations(event, owner=None) == [f"ConfigMap digits-config of others: {event}"]


def test_an_extra_object_may_change_and_must_not_be_deleted() -> None:
    assert extra_violations("ADDED", owner="digits") == []
    assert extra_violations("MODIFIED", owner="digits") == []
    assert extra_violations("DELETED", owner="digits") == ["ConfigMap digits-config of digits was deleted"]
