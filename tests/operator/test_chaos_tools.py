"""The tools that disturb and judge the operator do what they say: else a test that passes would mean nothing."""

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

from tests.support.chaos.pod_invariants import PodInvariants
from tests.support.chaos.scripted_jobs import scripted_jobs
from tests.support.servers.fault_proxy import FaultProxy
from tests.support.servers.faults import LOST, STATUS_CODES, STREAM, Act, Choice, Fault, FaultScript, act_of
from tests.support.servers.scripted_server import answer, scripted_server, stream
from trainwright.objects import Object

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
    """What comes of one request: its status and body, or the error; and how many requests the server has seen."""
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
async def test_a_write_with_a_fault_is_carried_out_only_if_the_fault_says_so(fault: Fault, tmp_path: Path) -> None:
    text, seen, proxy = await through(fault, tmp_path)
    assert seen == (1 if fault in LOST else 0)
    if fault in STATUS_CODES:
        assert text.startswith(f"{STATUS_CODES[fault]} ")
        assert fault in text
    else:
        assert text in {"ServerDisconnectedError", "ClientPayloadError", "ClientOSError"}
    assert proxy.counts == {fault: 1}


@pytest.mark.parametrize("fault", sorted(STREAM))
async def test_a_stream_passes_whole_up_to_its_fault(fault: Fault, tmp_path: Path) -> None:
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


async def test_after_its_limit_the_proxy_is_honest(tmp_path: Path) -> None:
    text, seen, proxy = await through(Fault.CONFLICT, tmp_path, limit=0)
    assert text.startswith("200 ")
    assert (seen, proxy.injected) == (1, [])


@pytest.mark.parametrize("rounds", range(6))
async def test_no_connection_outlives_the_proxy_however_far_its_handshake_has_come(tmp_path: Path, rounds: int) -> None:
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
    gc.collect()  # whoever was not closed complains


@pytest.mark.parametrize(
    ("method", "target", "act"),
    [
        ("GET", "/api/v1/pods", Act.LIST),
        ("GET", "/api/v1/namespaces", Act.LIST),
        ("GET", "/api/v1/namespaces/team", Act.GET),
        ("GET", "/api/v1/namespaces/team/pods", Act.LIST),
        ("GET", "/api/v1/namespaces/team/pods/one", Act.GET),
        ("GET", "/apis/kubeflow.org/v1/pytorchjobs?watch=true", Act.WATCH),
        ("GET", "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/one/status", Act.GET),
        ("PUT", "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/one/status", Act.WRITE),
    ],
)
def test_requests_are_told_apart(method: str, target: str, act: Act) -> None:
    path, _, query = target.partition("?")
    assert act_of(method, path, query) is act


@given(st.integers(), st.lists(st.sampled_from(["/api/v1/pods", "/api/v1/pods/a", "/api/v1/pods/b"])))
def test_a_choice_depends_on_the_request_and_not_on_what_others_do(seed: int, paths: list[str]) -> None:
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


def test_every_fault_is_chosen_sooner_or_later() -> None:
    script = FaultScript(1, rate=0.5)
    requests = [("PUT", ""), ("GET", ""), ("GET", "watch=1")] * 3000
    choices = [script.choose(method, "/api/v1/pods", query) for method, query in requests]
    assert {choice.fault for choice in choices if choice} == set(Fault)


def pod(uid: str, phase: str = "Running", index: int = 0) -> Object:
    labels = {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": str(index)}
    owner = {"name": "digits", "uid": "job", "controller": True}
    metadata = {"name": f"digits-worker-{index}", "uid": uid, "labels": labels, "ownerReferences": [owner]}
    return {"metadata": metadata, "status": {"phase": phase}}


def judged(*events: tuple[str, Object]) -> list[str]:
    lives = PodInvariants()
    for kind, one in events:
        lives.observe(kind, one)
    return lives.violations


def test_the_judge_sees_two_live_pods_of_one_rank() -> None:
    assert judged(("ADDED", pod("a")), ("ADDED", pod("b"))) == ["digits worker 0 has 2 live pods at the same time"]
    assert judged(("ADDED", pod("a")), ("ADDED", pod("b", index=1))) == []
    assert judged(("ADDED", pod("a")), ("MODIFIED", pod("a", "Failed")), ("ADDED", pod("b"))) == []
    assert judged(("ADDED", pod("a")), ("DELETED", pod("a")), ("ADDED", pod("b"))) == []


def test_the_judge_sees_a_finished_rank_that_starts_again() -> None:
    ended = (("ADDED", pod("a")), ("MODIFIED", pod("a", "Succeeded")), ("DELETED", pod("a", "Succeeded")))
    assert judged(*ended) == []
    assert judged(*ended, ("ADDED", pod("b"))) == ["digits worker 0 had succeeded and was started again"]


def test_the_script_of_a_fleet_has_failures_that_count_and_others_and_ends_well() -> None:
    jobs = scripted_jobs(4, 50, steps=range(10))
    assert jobs == scripted_jobs(4, 50, steps=range(10))
    ends = [lives for job in jobs for lives in job.ends.values()]
    assert all(lives[-1].exit_code == 0 and all(end.exit_code for end in lives[:-1]) for lives in ends)
    counted = sum(sum(job.restarts.values()) for job in jobs)
    assert 0 < counted < sum(job.replacements for job in jobs)
