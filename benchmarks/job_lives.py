"""The life of many jobs on a real API server, from creation to the end, with everything measured that it costs.

The operator is a process of its own; this one creates the jobs and plays the kubelet for all contenders alike.
"""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from benchmarks.apiserver_requests import writes_so_far
from benchmarks.onlooker import JOBS, Onlooker
from benchmarks.processes import cpu_seconds, peak_megabytes
from tests.support.cluster.controlplane import ControlPlane, Daemon
from trainwright.api.kinds import KINDS
from trainwright.kube.client import requests, responses
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import AlreadyExists, NotFound
from trainwright.objects import Object
from trainwright.objects.resources import NAMESPACES, PODS, SERVICE_ACCOUNTS
from trainwright.objects.times import format_time

T = TypeVar("T")

KIND = KINDS["PyTorchJob"]
NAMESPACE = "bench"
HANDS = 16
"""Requests of ours that are under way at the same time."""
STANDSTILL_SECONDS = 60.0
BOUNDED_SECONDS = 30.0
QUIET_SECONDS = 10.0


@dataclass(frozen=True)
class Scenario:
    jobs: int
    replicas: int

    @property
    def pods(self) -> int:
        return self.jobs * self.replicas

    def __str__(self) -> str:
        return f"{self.jobs}x{self.replicas}"


@dataclass(frozen=True)
class Cpu:
    """Seconds of processor time that both sides have used."""

    operator: float
    server: float

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.operator - other.operator, self.server - other.server)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    jobs: int
    pods: int
    """How many were created: all of the scenario, or as many as a bounded run got to."""
    creation_seconds: float
    creation_cpu: Cpu
    peak_megabytes: float
    delays: tuple[float, ...] = ()
    """From each job's creation until its last pod was there."""
    life_cpu: Cpu | None = None
    """From the first job's creation until all have succeeded and everything about it is told."""
    ending_seconds: float | None = None
    """From the last pod's end until the last job's."""
    writes: Counter[str] | None = None
    """What the operator asked the server to write, by verb and resource."""
    settled_writes: int | None = None
    """The same in a quiet time after the end."""
    settled_cpu: Cpu | None = None

    @property
    def pods_per_second(self) -> float:
        return self.pods / self.creation_seconds


async def measure(plane: ControlPlane, operator: Daemon, scenario: Scenario, *, bounded: bool) -> Measurement:
    async with Client(plane.config) as client:
        return await _measure(client, plane, operator, scenario, bounded=bounded)


async def _measure(
    client: Client, plane: ControlPlane, operator: Daemon, scenario: Scenario, *, bounded: bool
) -> Measurement:
    await _prepare(client)
    onlooker = Onlooker(client, namespace=NAMESPACE)
    lives = _Lives(client, plane, operator, onlooker)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(onlooker.run())
        await lives.live(Scenario(1, 2), prefix="warm-up")
        await lives.settled()
        measurement = await (lives.measure_bounded(scenario) if bounded else lives.measure(scenario))
        watching.cancel()
    return measurement


class _Lives:
    def __init__(self, client: Client, plane: ControlPlane, operator: Daemon, onlooker: Onlooker) -> None:
        self._client = client
        self._plane = plane
        self._operator = operator
        self._onlooker = onlooker
        self._addresses = itertools.count(2)

    async def measure_bounded(self, scenario: Scenario) -> Measurement:
        """As many pods as it gets to in a while; its jobs live on until the control plane ends."""
        before, cpu = len(self._onlooker.pod_names), self._cpu()
        started = time.monotonic()
        creating = asyncio.create_task(self._create_jobs(scenario, "job"))
        target = before + scenario.pods
        await self._onlooker.until(lambda: len(self._onlooker.pod_names) >= target, seconds=BOUNDED_SECONDS)
        seconds = time.monotonic() - started
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
        return Measurement(
            jobs=scenario.jobs,
            pods=len(self._onlooker.pod_names) - before,
            creation_seconds=seconds,
            creation_cpu=self._cpu() - cpu,
            peak_megabytes=peak_megabytes(self._operator.pid),
        )

    async def measure(self, scenario: Scenario) -> Measurement:
        written, cpu = await writes_so_far(self._client), self._cpu()
        started = time.monotonic()
        created = await self._create(scenario, "job")
        creation_seconds, creation_cpu = time.monotonic() - started, self._cpu() - cpu
        ending_seconds = await self._play(scenario)
        total = await self.settled()
        life_cpu = self._cpu() - cpu
        await asyncio.sleep(QUIET_SECONDS)
        settled_cpu = self._cpu() - cpu - life_cpu
        after = await writes_so_far(self._client)
        total.subtract(written)
        return Measurement(
            jobs=scenario.jobs,
            pods=scenario.pods,
            creation_seconds=creation_seconds,
            creation_cpu=creation_cpu,
            peak_megabytes=peak_megabytes(self._operator.pid),
            delays=tuple(self._onlooker.pods[job][-1] - moment for job, moment in created.items()),
            life_cpu=life_cpu,
            ending_seconds=ending_seconds,
            writes=_without_ours(total),
            settled_writes=(after - total - written).total(),
            settled_cpu=settled_cpu,
        )

    def _cpu(self) -> Cpu:
        plane = self._plane
        server = cpu_seconds(plane.apiserver.pid) + cpu_seconds(plane.etcd.pid)
        return Cpu(cpu_seconds(self._operator.pid), server)

    async def live(self, scenario: Scenario, prefix: str) -> None:
        await self._create(scenario, prefix)
        await self._play(scenario)

    async def settled(self) -> Counter[str]:
        """Waits until nothing is written any more; all that has been written until then."""
        last = await writes_so_far(self._client)
        while True:
            await asyncio.sleep(1.5)
            self._operator.check()
            now = await writes_so_far(self._client)
            if now == last:
                return now
            last = now

    async def _create(self, scenario: Scenario, prefix: str) -> dict[str, float]:
        """Creates the jobs and waits for all their pods and services; when each was created, by name."""
        look = self._onlooker
        pods, services = len(look.pod_names) + scenario.pods, look.services + scenario.pods
        created = await self._create_jobs(scenario, prefix)
        await self._until("all pods and services", lambda: len(look.pod_names) >= pods and look.services >= services)
        return created

    async def _create_jobs(self, scenario: Scenario, prefix: str) -> dict[str, float]:
        created: dict[str, float] = {}

        async def create(number: int) -> None:
            name = f"{prefix}-{number}"
            created[name] = time.monotonic()
            await self._send(requests.create_request(JOBS, _job(name, scenario.replicas), namespace=NAMESPACE))

        await _in_parallel(create, range(scenario.jobs))
        return created

    async def _play(self, scenario: Scenario) -> float:
        """The kubelet's part for the newest jobs: all pods run, then all succeed. Seconds from then to the last job's
        end."""
        pods, reached = self._onlooker.pod_names[-scenario.pods :], self._onlooker.reached
        running, succeeded = (reached[condition] + scenario.jobs for condition in ("Running", "Succeeded"))
        now = format_time(datetime.now(UTC))
        await _in_parallel(lambda pod: self._report(pod, "Running", {"running": {"startedAt": now}}), pods)
        await self._until("all jobs Running", lambda: reached["Running"] >= running)
        ended = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
        await _in_parallel(lambda pod: self._report(pod, "Succeeded", {"terminated": ended}), pods)
        started = time.monotonic()
        await self._until("all jobs Succeeded", lambda: reached["Succeeded"] >= succeeded)
        return time.monotonic() - started

    async def _report(self, pod: str, phase: str, state: Object) -> None:
        address = next(self._addresses)
        container = {
            "name": KIND.container,
            "image": "example.com/train:1",
            "imageID": "example.com/train:1",
            "ready": phase == "Running",
            "restartCount": 0,
            "state": state,
        }
        status = {
            "phase": phase,
            "podIP": f"10.{address >> 16 & 255}.{address >> 8 & 255}.{address & 255}",
            "containerStatuses": [container],
        }
        await self._send(
            requests.patch_request(PODS, pod, {"status": status}, namespace=NAMESPACE, subresource="status")
        )

    async def _send(self, request: requests.Request) -> None:
        responses.read_bytes(await self._client.send(request))

    async def _until(self, what: str, condition: Callable[[], bool]) -> None:
        """However long it takes, as long as there is progress."""
        seen, deadline = "", 0.0
        while not await self._onlooker.until(condition, seconds=1.0):
            self._operator.check()
            if self._onlooker.seen != seen:
                seen, deadline = self._onlooker.seen, time.monotonic() + STANDSTILL_SECONDS
            elif time.monotonic() > deadline:
                log = self._operator.log.read_text()[-2000:]
                raise TimeoutError(f"nothing new for {STANDSTILL_SECONDS:.0f} s, waiting for {what}: {seen}\n{log}")


async def _in_parallel(function: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            await function(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(HANDS):
            group.create_task(work())


def _without_ours(writes: Counter[str]) -> Counter[str]:
    ours = {f"create {JOBS.plural}", "patch pods/status"}
    return Counter({what: count for what, count in writes.items() if count and what not in ours})


async def _prepare(client: Client) -> None:
    """Makes the namespace, and waits until the server serves the jobs that it has just been told about."""
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": NAMESPACE}}
    with suppress(AlreadyExists):
        await client.create(SERVICE_ACCOUNTS, account)
    while True:
        with suppress(NotFound):
            await client.list(JOBS)
            return
        await asyncio.sleep(0.05)


def _job(name: str, replicas: int) -> Object:
    container = {"name": KIND.container, "image": "example.com/train:1", "command": ["python", "/train.py"]}
    template = {"spec": {"containers": [container]}}
    roles = {"Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": template}}
    if replicas > 1:
        roles["Worker"] = {"replicas": replicas - 1, "restartPolicy": "OnFailure", "template": template}
    return {
        "apiVersion": JOBS.api_version,
        "kind": KIND.name,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {KIND.replicas_field: roles},
    }
