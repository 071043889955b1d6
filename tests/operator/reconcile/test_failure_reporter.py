"""Why a job failed: an event and `status.failure`, from exit codes, logs where that is allowed, or records."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.cluster.embedded_apiserver import RecordedLogs, running_embedded
from tests.support.harness.job_harness import JobHarness
from tests.support.harness.running_operator import running_operator
from tests.support.kubernetes.fake_kubelet import FakeKubelet, running_kubelet
from tests.support.objects.jobs import JobBuilder
from tests.support.waiting import eventually
from trainwright.api.kinds import KINDS
from trainwright.engine import Settings
from trainwright.kube.client.async_client import Client
from trainwright.objects import Object
from trainwright.objects.kinds.container_runs import ContainerRun, Line
from trainwright.operator import install_crds


@dataclass
class Cluster:
    jobs: JobHarness
    kubelet: FakeKubelet
    logs: RecordedLogs

    async def fail(self, **exit_codes: int) -> Object:
        """Runs a job of a master and two workers in which these pods fail; returns its `status.failure`."""
        builder = JobBuilder("job").master(policy="Never").workers(2, policy="Never")
        await self.jobs.submit(builder.run_policy(cleanPodPolicy="None"))
        await self.jobs.wait_until_running("job")
        for rank, code in exit_codes.items():
            await self.kubelet.finish(f"job-{rank.replace('_', '-')}", exit_code=code)
        return await self.failure()

    async def failure(self) -> Object:
        status = await eventually(lambda: self.jobs.status("job"), lambda status: "failure" in status)
        found: Object = status["failure"]
        return found

    def log(self, pod: str, *lines: bytes, second: int = 0) -> None:
        stamped = [b"2026-11-15T10:00:%02d.5Z %b\n" % (second, line) for line in lines]
        self.logs.texts[f"default/{pod}/pytorch"] = b"".join(stamped)


@asynccontextmanager
async def cluster(**options: Any) -> AsyncIterator[Cluster]:
    # The embedded API server has no autoscalers.
    async with running_embedded() as server, Client(server.config) as client:
        await install_crds(client, KINDS.values())
        async with (
            running_kubelet(client, "default") as kubelet,
            running_operator(client, settings=Settings(autoscaling=False), **options) as operator,
        ):
            yield Cluster(JobHarness(client, "default", operator), kubelet, server.logs)


async def events(cluster: Cluster) -> list[str]:
    async def found() -> list[str]:
        return [message for _, reason, message in await cluster.jobs.events("job") if reason == "FailureDiagnosed"]

    return await eventually(found, bool)


async def test_exit_codes_are_reported_and_logs_are_not_read_unless_that_is_allowed() -> None:
    async with cluster() as one:
        failure = await one.fail(worker_1=3)

        ended = failure.pop("finishedAt")
        assert ended.endswith("Z")
        assert failure == {
            "rank": "worker-1",
            "pod": "job-worker-1",
            "container": "pytorch",
            "exitCode": 3,
            "reason": "ExitCode",
            "cause": "exit code 3",
        }
        assert await events(one) == ["worker-1 failed first: exit code 3"]
        assert one.logs.asked == []


async def test_logs_of_failed_pods_alone_are_read_if_that_is_allowed() -> None:
    async with cluster(read_failed_pod_logs=True) as one:
        header = b"Traceback (most recent call last):"
        one.log("job-worker-0", header, b"ModuleNotFoundError: No module named 'flash'")
        failure = await one.fail(worker_0=1)

        assert (failure["rank"], failure["reason"]) == ("worker-0", "MissingModule")
        assert failure["cause"] == "ModuleNotFoundError: No module named 'flash'"
        assert "install it" in failure["advice"]
        [message] = await events(one)
        assert message.startswith("worker-0 failed first: ModuleNotFoundError: No module named 'flash': ")
        assert len(one.logs.asked) == 1


async def test_the_records_of_nodes_are_preferred_to_the_statuses_of_pods() -> None:
    def read_runs(uid: str) -> Sequence[ContainerRun]:
        lines = (Line("Traceback (most recent call last):", 1.0), Line("ValueError: boom", 1.0))
        ended = ContainerRun(rank="worker-1", pod="p", exit_code=1, finished_at=2.0, exact=True, lines=lines)
        return [ended, ContainerRun(rank="master-0", pod="m", exit_code=1, finished_at=3.0, exact=True)]

    async with cluster(read_runs=read_runs) as one:
        failure = await one.fail(master_0=1)
        assert (failure["rank"], failure["cause"]) == ("worker-1", "ValueError: boom")
        assert failure["followers"] == ["master-0"]


async def test_a_failure_just_before_the_operator_was_ended_is_reported_by_the_next_one() -> None:
    def unreadable(uid: str) -> Sequence[ContainerRun]:
        raise RuntimeError("the process was ended")

    def read_runs(uid: str) -> Sequence[ContainerRun]:
        return [ContainerRun(rank="master-0", pod="job-master-0", exit_code=3, finished_at=2.0, exact=True)]

    settings = Settings(autoscaling=False)
    async with running_embedded() as server, Client(server.config) as client:
        await install_crds(client, KINDS.values())
        async with running_kubelet(client, "default") as kubelet:
            async with running_operator(client, settings=settings, read_runs=unreadable) as operator:
                jobs = JobHarness(client, "default", operator)
                await jobs.submit(JobBuilder("job").master(policy="Never"))
                await jobs.wait_until_running("job")
                await kubelet.finish("job-master-0", exit_code=3)
                assert "failure" not in (await jobs.wait_for_end("job", "Failed"))["status"]
            async with running_operator(client, settings=settings, read_runs=read_runs) as operator:
                cluster = Cluster(JobHarness(client, "default", operator), kubelet, server.logs)
                assert (await cluster.failure())["rank"] == "master-0"


async def test_a_job_that_fails_by_its_deadline_has_no_first_failing_rank() -> None:
    async with cluster() as one:
        builder = JobBuilder("job").master(policy="Never").run_policy(activeDeadlineSeconds=1, cleanPodPolicy="Running")
        await one.jobs.submit(builder)
        await one.jobs.wait_for_end("job", "Failed")
        await one.jobs.settle()
        assert "failure" not in await one.jobs.status("job")


async def test_a_defect_of_the_analysis_does_not_affect_the_job() -> None:
    def read_runs(uid: str) -> Sequence[ContainerRun]:
        raise RuntimeError("defect")

    async with cluster(read_runs=read_runs) as one:
        builder = JobBuilder("job").master(policy="Never").run_policy(cleanPodPolicy="All")
        await one.jobs.submit(builder)
        await one.jobs.wait_until_running("job")
        await one.kubelet.finish("job-master-0", exit_code=1)
        await one.jobs.wait_for_end("job", "Failed")
        await one.jobs.wait_for_children("job", [])


async def test_a_job_that_keeps_restarting_says_why_once() -> None:
    def read_runs(uid: str) -> Sequence[ContainerRun]:
        error = "RuntimeError: Distributed package doesn't have MPI built in."
        lines = (Line("Traceback (most recent call last):", 1.0), Line(error, 1.0))
        return [
            ContainerRun(rank="master-0", pod="job-master-0", exit_code=1, finished_at=1.0, exact=True, lines=lines)
        ]

    async with cluster(read_runs=read_runs) as one:
        await one.jobs.submit(JobBuilder("job").master(policy="OnFailure"))
        await one.jobs.wait_until_running("job")
        for seconds in (10, 20):
            message = f"back-off {seconds}s restarting failed container"
            await one.kubelet.back_off("job-master-0", message=message)
            about = f"Error pod job-master-0 container pytorch waiting message: {message}"
            await one.jobs.wait_for_events("job", ("Warning", "CrashLoopBackOff", about))

        [message] = await events(one)
        assert message == (
            "master-0 failed first: RuntimeError: Distributed package doesn't have MPI built in.: this torch has no "
            "MPI: use the backend gloo, or run an MPI program as an MPIJob, in which mpirun starts it"
        )
        assert "failure" not in await one.jobs.status("job")


async def test_restarts_of_which_only_the_exit_code_is_known_are_not_explained() -> None:
    async with cluster() as one:
        await one.jobs.submit(JobBuilder("job").master(policy="OnFailure"))
        await one.jobs.wait_until_running("job")
        await one.kubelet.back_off("job-master-0", message="back-off 10s")
        about = "Error pod job-master-0 container pytorch waiting message: back-off 10s"
        await one.jobs.wait_for_events("job", ("Warning", "CrashLoopBackOff", about))
        await one.jobs.settle()
        assert "FailureDiagnosed" not in {reason for _, reason, _ in await one.jobs.events("job")}
