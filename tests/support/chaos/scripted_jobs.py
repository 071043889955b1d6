"""Many jobs of three kinds whose pods end as a seeded script says, on the real API server.

The test that disturbs the operator advances the script, so that disturbances meet every phase of a job however fast
the machine is. The script also says exactly what the operator must have done in the end.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.support.chaos.extra_objects import bystanders
from tests.support.harness.job_harness import submit
from tests.support.kubernetes.fake_kubelet import FakeKubelet
from tests.support.objects.jobs import JobBuilder
from trainwright.api.kinds import PYTORCH, Kind
from trainwright.api.kinds.mpi import MPI
from trainwright.api.kinds.tensorflow import TENSORFLOW
from trainwright.kube.client.async_client import Client
from trainwright.kube.client.errors import ApiError, Conflict, NotFound, Unreachable
from trainwright.objects import Object

SCRIPTED_KINDS = (PYTORCH, TENSORFLOW, MPI)

_RETRY_SECONDS = 0.2
_EVICTED = "Evicted"


@dataclass(frozen=True)
class End:
    """How one pod ends: the step of the script, the exit code, and the reason if the cluster ended it."""

    step: int
    exit_code: int | None
    """None for a pod that runs until its job has finished, as the workers of an MPIJob do."""
    reason: str = ""

    @property
    def counts(self) -> bool:
        """True for a failure of the program, which counts as a restart."""
        return bool(self.exit_code) and not self.reason


@dataclass(frozen=True)
class ScriptedJob:
    name: str
    kind: Kind
    replicas: dict[str, int]
    """By role, the one that decides first."""
    policies: dict[str, str]
    ends: dict[str, tuple[End, ...]]
    """By pod name: the ends of its pods in order. The last one succeeds, or runs until the job has finished."""

    @property
    def deciding_role(self) -> str:
        return next(iter(self.replicas))

    @property
    def has_services(self) -> bool:
        return self.kind.roles[0].has_service

    def build(self, namespace: str) -> JobBuilder:
        builder = JobBuilder(self.name, kind=self.kind, namespace=namespace)
        for role, count in self.replicas.items():
            builder.replica(role, count, policy=self.policies[role])
        return builder

    def role_of(self, pod: str) -> str:
        role = pod.removeprefix(f"{self.name}-").partition("-")[0]
        return next(one for one in self.replicas if one.lower() == role)

    @property
    def restarts(self) -> dict[str, int]:
        """The expected `status.restarts` of the finished job."""
        counts: Counter[str] = Counter()
        for pod, ends in self.ends.items():
            counts[self.role_of(pod)] += sum(end.counts for end in ends)
        return {role: count for role, count in counts.items() if count}

    @property
    def replacements(self) -> int:
        return sum(len(ends) - 1 for ends in self.ends.values())


def scripted_jobs(seed: int, count: int, *, steps: range) -> list[ScriptedJob]:
    """Jobs of all scripted kinds in turn whose pods end within these steps of the script. About two in five ranks fail
    at least once."""
    dice = random.Random(f"fleet {seed}")
    kinds = itertools.islice(itertools.cycle(SCRIPTED_KINDS), count)
    return [_scripted_job(dice, kind, f"job-{seed}-{number:02}", steps) for number, kind in enumerate(kinds)]


def _scripted_job(dice: random.Random, kind: Kind, name: str, steps: range) -> ScriptedJob:
    workers = dice.randint(1, 3)
    replicas = {"Chief": 1, "PS": dice.randint(1, 2)} if kind is TENSORFLOW else {kind.roles[0].name: 1}
    replicas["Worker"] = workers
    policies = {role: dice.choice(("OnFailure", "ExitCode")) for role in replicas}
    ends = {
        role.child_name(name, index): _ends(dice, policies[role.name], steps, completes=role.completes)
        for role in (kind.roles_by_label[one.lower()] for one in replicas)
        for index in range(replicas[role.name])
    }
    return ScriptedJob(name, kind, replicas, policies, ends)


def _ends(dice: random.Random, policy: str, steps: range, *, completes: bool) -> tuple[End, ...]:
    failures = dice.choice((0, 0, 0, 1, 2))
    moments = sorted(dice.choice(steps) for _ in range(failures + 1))
    failed = [_failure(dice, policy, moment) for moment in moments[:-1]]
    return (*failed, End(moments[-1], 0 if completes else None))


def _failure(dice: random.Random, policy: str, moment: int) -> End:
    if dice.random() < 0.15:
        return End(moment, 137, _EVICTED)
    return End(moment, dice.choice((130, 137, 143)) if policy == "ExitCode" else dice.choice((1, 2, 137)))


class ScriptedKubelet:
    """Binds, starts and ends pods as the script says. `on_pod_event` takes every change of a pod, `advance` moves the
    script on."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.jobs: list[ScriptedJob] = []
        self._client = client
        self._namespace = namespace
        self._kubelet = FakeKubelet(client, namespace=namespace)
        self._ends: dict[str, tuple[End, ...]] = {}
        self._unfinished: dict[str, int] = {}
        """By job, the pods that have not succeeded besides the one that decides."""
        self._created: Counter[str] = Counter()
        self._known: set[str] = set()
        self._step = 0
        self._moved = asyncio.Condition()
        self._tasks: asyncio.TaskGroup
        self._steps: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self._kubelet.register()
        async with asyncio.TaskGroup() as self._tasks:
            yield
            for task in self._steps:
                task.cancel()

    async def submit(self, jobs: list[ScriptedJob]) -> None:
        for job in jobs:
            self.jobs.append(job)
            self._ends |= job.ends
            self._unfinished[job.name] = len(job.ends) - 1
            for resource, bystander in bystanders(job.kind, job.name, self._namespace):
                await self._client.create(resource, bystander, namespace=self._namespace)
            await submit(self._client, job.build(self._namespace))

    async def advance(self, step: int) -> None:
        """Ends the pods that the script ends up to this step."""
        async with self._moved:
            self._step = max(self._step, step)
            self._moved.notify_all()

    def on_pod_event(self, kind: str, pod: Object) -> None:
        metadata = pod["metadata"]
        if kind == "DELETED":
            return
        if metadata["uid"] not in self._known:
            self._known.add(metadata["uid"])
            number = self._created[metadata["name"]]
            self._created[metadata["name"]] += 1
            self._spawn(self._run_pod(metadata["name"], number))
        elif metadata.get("deletionTimestamp"):
            self._spawn(_retrying(lambda: self._kubelet.complete_deletion(metadata["name"], uid=metadata["uid"])))

    def _spawn(self, step: Coroutine[None, None, None]) -> None:
        task = self._tasks.create_task(step)
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)

    async def _run_pod(self, pod: str, number: int) -> None:
        await _retrying(lambda: self._kubelet.bind(pod))
        await _retrying(lambda: self._kubelet.start(pod))
        if number >= len(self._ends[pod]):
            return  # the operator should not have created it: it keeps running, and the assertions report it
        end = self._ends[pod][number]
        job = next(one for one in self.jobs if pod in one.ends)
        decides = job.role_of(pod) == job.deciding_role
        async with self._moved:
            await self._moved.wait_for(
                lambda: (
                    self._step >= end.step
                    # Failures after the success of the job do not count, so the pod that decides succeeds last.
                    and not (decides and end.exit_code == 0 and self._unfinished[job.name])
                )
            )
        if (code := end.exit_code) is not None:
            await _retrying(
                lambda: self._kubelet.finish(pod, exit_code=code, reason=end.reason, message="as the script says")
            )
        if not decides and not end.exit_code:
            async with self._moved:
                self._unfinished[job.name] -= 1
                self._moved.notify_all()


async def _retrying(step: Callable[[], Awaitable[None]]) -> None:
    """Retries while the API server is unavailable, as a kubelet does."""
    while True:
        try:
            await step()
            return
        except (NotFound, Conflict):
            return  # done by an attempt whose answer was lost, or the pod is deleted
        except (ApiError, Unreachable):
            await asyncio.sleep(_RETRY_SECONDS)
