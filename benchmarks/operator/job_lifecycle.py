"""Runs many jobs on a real API server from creation to success and measures the operator.

The operator is a process of its own. This process creates the jobs and reports the pods' statuses as a kubelet does,
the same for all contenders.
"""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from benchmarks.namespace import NAMESPACE, create_namespace
from benchmarks.operator.apiserver_requests import writes_so_far
from benchmarks.operator.job_watcher import JobWatcher
from benchmarks.processes import cpu_seconds, peak_megabytes
from tests.support.kubernetes.controlplane import ControlPlane, Daemon
from trainwright.api.kinds import PYTORCH, Kind
from trainwright.api.kinds.kind import Role
from trainwright.api.kinds.mpi import MPI
from trainwright.kube.client import requests, responses
from trainwright.kube.client.async_client import Client
from trainwright.kube.controller.event_recorder import COUNTING_SECONDS
from trainwright.objects import Object
from trainwright.objects.resources import PODS
from trainwright.objects.times import format_time

T = TypeVar("T")

_FIRST_ROLE = {"PyTorchJob": "Master", "TFJob": "Chief", "XGBoostJob": "Master"}
"""The role of the first replica, by kind; that of all others is Worker. An MPIJob has a Launcher besides."""
PARALLEL_REQUESTS = 16
STALLED_SECONDS = 60.0
BOUNDED_SECONDS = 30.0
QUIET_SECONDS = 10.0
SETTLED_SECONDS = COUNTING_SECONDS + 0.5
"""Without a write for this long all events are written: our recorder holds back counts of similar events."""


@dataclass(frozen=True)
class Scenario:
    jobs: int
    replicas: int
    kind: Kind = PYTORCH

    @property
    def roles(self) -> Counter[str]:
        """The number of replicas of each role."""
        if self.kind is MPI:
            return Counter({"Launcher": 1, "Worker": self.replicas})
        return Counter([_FIRST_ROLE.get(self.kind.name, "Worker"), *["Worker"] * (self.replicas - 1)])

    @property
    def pods(self) -> int:
        return self.jobs * self.roles.total()

    @property
    def services(self) -> int:
        return self.jobs * sum(number for role, number in self.roles.items() if self._role(role).has_service)

    @property
    def container(self) -> str:
        return self.kind.container or "main"

    def starts_last(self, pod: str) -> bool:
        """True for a launcher: it waits until its workers are ready."""
        return self.kind is MPI and not self.serves(pod)

    def serves(self, pod: str) -> bool:
        """True for a pod that runs until its job has finished."""
        role = self._role("Worker")
        return not role.completes and f"-{role.label}-" in pod

    def _role(self, name: str) -> Role:
        return self.kind.roles_by_label[name.lower()]

    def __str__(self) -> str:
        return f"{self.jobs}x{self.replicas} {self.kind.name}"


@dataclass(frozen=True)
class Cpu:
    """CPU seconds of the operator and of the API server."""

    operator: float
    server: float

    def __sub__(self, other: "Cpu") -> "Cpu":
        return Cpu(self.operator - other.operator, self.server - other.server)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    jobs: int
    pods: int
    """The number of pods created: all of the scenario, or those of a bounded run."""
    creation_seconds: float
    creation_cpu: Cpu
    peak_megabytes: float
    delays: tuple[float, ...] = ()
    """From each job's creation to that of its last pod."""
    life_cpu: Cpu | None = None
    """From the first job's creation until all have succeeded and all events are written."""
    ending_seconds: float | None = None
    """From the end of the last pod to that of the last job."""
    writes: Counter[str] | None = None
    """The operator's writes by verb and resource."""
    settled_writes: int | None = None
    """The number of writes in a period after the end."""
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
    jobs = scenario.kind.resource
    await create_namespace(client, jobs)
    watcher = JobWatcher(client, jobs, namespace=NAMESPACE)
    lifecycle = _Lifecycle(client, plane, operator, watcher)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watcher.run())
        await lifecycle.run(Scenario(1, 2, scenario.kind), prefix="warm-up")
        await lifecycle.settled()
        measurement = await (lifecycle.measure_bounded(scenario) if bounded else lifecycle.measure(scenario))
        watching.cancel()
    return measurement


class _Lifecycle:
    def __init__(self, client: Client, plane: ControlPlane, operator: Daemon, watcher: JobWatcher) -> None:
        self._client = client
        self._plane = plane
        self._operator = operator
        self._watcher = watcher
        self._addresses = itertools.count(2)

    async def measure_bounded(self, scenario: Scenario) -> Measurement:
        """Counts the pods of the first seconds; the jobs run until the control plane ends."""
        before, cpu = len(self._watcher.pod_names), self._cpu()
        started = time.monotonic()
        creating = asyncio.create_task(self._create_jobs(scenario, "job"))
        target = before + scenario.pods
        await self._watcher.until(lambda: len(self._watcher.pod_names) >= target, seconds=BOUNDED_SECONDS)
        seconds = time.monotonic() - started
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
        return Measurement(
            jobs=scenario.jobs,
            pods=len(self._watcher.pod_names) - before,
            creation_seconds=seconds,
            creation_cpu=self._cpu() - cpu,
            peak_megabytes=peak_megabytes(self._operator.pid),
        )

    async def measure(self, scenario: Scenario) -> Measurement:
        written, cpu = await writes_so_far(self._client), self._cpu()
        started = time.monotonic()
        created = await self._create(scenario, "job")
        creation_seconds, creation_cpu = time.monotonic() - started, self._cpu() - cpu
        ending_seconds = await self._run_pods(scenario)
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
            delays=tuple(self._watcher.pods[job][-1] - moment for job, moment in created.items()),
            life_cpu=life_cpu,
            ending_seconds=ending_seconds,
            writes=_by_the_operator(total, scenario.kind),
            settled_writes=(after - total - written).total(),
            settled_cpu=settled_cpu,
        )

    def _cpu(self) -> Cpu:
        plane = self._plane
        server = cpu_seconds(plane.apiserver.pid) + cpu_seconds(plane.etcd.pid)
        return Cpu(cpu_seconds(self._operator.pid), server)

    async def run(self, scenario: Scenario, prefix: str) -> None:
        await self._create(scenario, prefix)
        await self._run_pods(scenario)

    async def settled(self) -> Counter[str]:
        """Waits until no more writes arrive; returns all writes so far."""
        last = await writes_so_far(self._client)
        while True:
            await asyncio.sleep(SETTLED_SECONDS)
            self._operator.check()
            now = await writes_so_far(self._client)
            if now == last:
                return now
            last = now

    async def _create(self, scenario: Scenario, prefix: str) -> dict[str, float]:
        """Creates the jobs and waits for all pods and Services; returns the creation times of the jobs by name."""
        seen = self._watcher
        pods, services = len(seen.pod_names) + scenario.pods, seen.services + scenario.services
        created = await self._create_jobs(scenario, prefix)
        await self._until("all pods and services", lambda: len(seen.pod_names) >= pods and seen.services >= services)
        return created

    async def _create_jobs(self, scenario: Scenario, prefix: str) -> dict[str, float]:
        created: dict[str, float] = {}

        async def create(number: int) -> None:
            name = f"{prefix}-{number}"
            created[name] = time.monotonic()
            job = _job(scenario, name)
            await self._send(requests.create_request(scenario.kind.resource, job, namespace=NAMESPACE))

        await _in_parallel(create, range(scenario.jobs))
        return created

    async def _run_pods(self, scenario: Scenario) -> float:
        """Sets all pods of the newest jobs Running and, when all jobs are Running, those that end by themselves
        Succeeded. Returns the seconds from then to the end of the last job."""
        pods, reached = (
            sorted(self._watcher.pod_names[-scenario.pods :], key=scenario.starts_last),
            self._watcher.reached,
        )
        running, succeeded = (reached[condition] + scenario.jobs for condition in ("Running", "Succeeded"))
        now = format_time(datetime.now(UTC))
        container = scenario.container
        started = {"running": {"startedAt": now}}
        await _in_parallel(lambda pod: self._report(pod, container, "Running", started), pods)
        await self._until("all jobs Running", lambda: reached["Running"] >= running)
        ended = {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}
        ending = [pod for pod in pods if not scenario.serves(pod)]
        await _in_parallel(lambda pod: self._report(pod, container, "Succeeded", {"terminated": ended}), ending)
        all_ended = time.monotonic()
        await self._until("all jobs Succeeded", lambda: reached["Succeeded"] >= succeeded)
        return time.monotonic() - all_ended

    async def _report(self, pod: str, container: str, phase: str, state: Object) -> None:
        address = next(self._addresses)
        reported = {
            "name": container,
            "image": "example.com/train:1",
            "imageID": "example.com/train:1",
            "ready": phase == "Running",
            "restartCount": 0,
            "state": state,
        }
        status = {
            "phase": phase,
            "podIP": f"10.{address >> 16 & 255}.{address >> 8 & 255}.{address & 255}",
            "containerStatuses": [reported],
        }
        await self._send(
            requests.patch_request(PODS, pod, {"status": status}, namespace=NAMESPACE, subresource="status")
        )

    async def _send(self, request: requests.Request) -> None:
        responses.read_bytes(await self._client.send(request))

    async def _until(self, what: str, condition: Callable[[], bool]) -> None:
        """Waits as long as there is progress."""
        seen, deadline = "", 0.0
        while not await self._watcher.until(condition, seconds=1.0):
            self._operator.check()
            if self._watcher.seen != seen:
                seen, deadline = self._watcher.seen, time.monotonic() + STALLED_SECONDS
            elif time.monotonic() > deadline:
                log = self._operator.log.read_text()[-2000:]
                raise TimeoutError(f"no progress for {STALLED_SECONDS:.0f} s, waiting for {what}: {seen}\n{log}")


async def _in_parallel(function: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
    waiting = iter(items)

    async def work() -> None:
        for item in waiting:
            await function(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(PARALLEL_REQUESTS):
            group.create_task(work())


def _by_the_operator(writes: Counter[str], kind: Kind) -> Counter[str]:
    by_the_benchmark = {f"create {kind.plural}", "patch pods/status"}
    return Counter({what: count for what, count in writes.items() if count and what not in by_the_benchmark})


def _job(scenario: Scenario, name: str) -> Object:
    kind = scenario.kind
    container = {"name": scenario.container, "image": "example.com/train:1", "command": ["python", "/train.py"]}
    template = {"spec": {"containers": [container]}}
    roles = {
        role: {"replicas": count, "restartPolicy": "OnFailure", "template": template}
        for role, count in scenario.roles.items()
    }
    return {
        "apiVersion": kind.resource.api_version,
        "kind": kind.name,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {kind.replicas_field: roles},
    }
